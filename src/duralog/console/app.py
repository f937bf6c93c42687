"""The console as a web server: its pages on one source, behind the rules of `duralog.console.access`.

The toolkit keeps its pages in the process, so a process has one console. `run` returns after SIGTERM or SIGINT, when
the pages are closed. It leaves no files.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from nicegui import Client, app, ui
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from duralog.broker.security.web_tls import WebTls
from duralog.broker.security.web_users import WebUsers
from duralog.console.access import Application, GuardedApplication
from duralog.console.changes.changer import Changer
from duralog.console.connections import Connections, listen, most_connections
from duralog.console.facts.copies import ClusterCopies
from duralog.console.login import LoggedIn, TrustedHeader
from duralog.console.pages import (
    acls,
    audit,
    compaction,
    configs,
    copies,
    downloads,
    groups,
    health,
    overview,
    partition,
    records,
    topic,
    topic_records,
)
from duralog.console.pages.schemas import subjects
from duralog.console.socket_messages import CheckedSockets
from duralog.console.source import Source
from duralog.console.ui import theme
from duralog.console.ui.layout import Console, forget_unopened_pages

_GOODBYE_SECONDS = 1
_RECONNECT_SECONDS = 10.0
# The records of a topic before the partitions: `/topic/T/records` is not a partition.
_PAGES = (
    overview,
    topic,
    topic_records,
    partition,
    records,
    compaction,
    groups,
    subjects,
    configs,
    acls,
    health,
    copies,
    audit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The host names, users and certificate of the server."""

    host: str
    """The host name of the listener."""
    more_hosts: Sequence[str] = ()
    tls: WebTls | None = None
    users: WebUsers | None = None
    """None: everyone has access."""
    header: TrustedHeader | None = None

    def around(self, application: Application) -> Application:
        guarded: Application = CheckedSockets(application)
        if self.users is not None:
            guarded = LoggedIn(guarded, self.users, header=self.header, is_secure=self.tls is not None)
        return GuardedApplication(guarded, host=self.host, more_hosts=self.more_hosts)


def run(
    source: Source,
    changer: Changer,
    listener: socket.socket,
    *,
    guard: Guard,
    audit_log: str | None = None,
    cluster: ClusterCopies | None = None,
    when_ready: Callable[[], None],
) -> None:
    """Serve the pages on a bound socket until a signal arrives. `audit_log` is the broker's file.

    `cluster` has the directories whose replicas can be compared.
    """
    tls = guard.tls
    application = guard.around(web_application(Console(source, changer, audit_log, cluster)))
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = Connections(application, most=most_connections(open_files))
    server = _Server(
        uvicorn.Config(
            connections,
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="wsproto",
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
        ),
        connections,
        listener,
        when_ready,
    )
    # The objects that are loaded now stay: garbage collection of them would block pages.
    gc.collect()
    gc.freeze()
    # After it has stopped, uvicorn calls the previous signal handler: here, that would stop it again.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[])


def web_application(console: Console) -> FastAPI:
    """The web application, without access rules."""
    for module in _PAGES:
        module.register(console)
    app.add_static_files(theme.ASSETS_PATH, theme.ASSETS)
    ui.add_head_html(theme.head_html(), shared=True)
    app.colors(primary=theme.ACCENT, positive=theme.CLEAN, negative=theme.BAD, warning=theme.SECOND)

    @app.exception_handler(404)
    async def missing(request: Request, _: Exception) -> Response:
        forget_unopened_pages()
        with Client(ui.page(""), request=request) as client:
            console.show_problem(404, "Not found", "There is no such page.")
        return client.build_response(request, 404)

    app.on_page_exception(
        lambda: console.show_problem(500, "That did not work", "See the standard error of the console for the reason.")
    )
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    outer.router.routes.append(Route(downloads.PATH, downloads.DownloadApplication(console.source)))
    ui.run_with(
        outer,
        title="duralog",
        favicon=theme.ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=_RECONNECT_SECONDS,
        show_welcome_message=False,
    )
    return outer


class _Server(uvicorn.Server):
    """uvicorn with the console's own way to accept connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        listener: socket.socket,
        when_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._listener = listener
        self._when_ready = when_ready
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            listen(self._listener)
            accepting = self._connections.accept(self._listener, self._protocol, self.config.ssl)
            self._accepting = asyncio.create_task(accepting)
            self._when_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
