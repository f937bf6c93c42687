"""Downloads that nobody reads: they end, and others get their places."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("nicegui")

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from uvicorn.server import ServerState

import duralog
from duralog.broker.net.listening import Address, bind
from duralog.broker.security.web_users import Role, UserEntry, WebUser
from duralog.console.access import Receive, Scope, Send
from duralog.console.connections import Connections, listen
from duralog.console.pages.downloads import PATH, DownloadApplication
from duralog.console.source import Source
from duralog.console.sources.opening import open_source
from duralog.console.viewers import SCOPE_KEY, Viewer

REQUEST = b"GET /download/large?as=jsonl HTTP/1.1\r\nHost: console\r\nUser: %s\r\nConnection: close\r\n\r\n"
PARTS, PART_BYTES = 24, 1_000_000
SECONDS = 120


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than the buffers of a connection hold."""
    directory = tmp_path_factory.mktemp("large")
    with duralog.open(directory) as store:
        store.create_topic("large", partitions=1)
        log = store.partition("large", 0)
        for _ in range(PARTS):
            log.append([duralog.Record(value=os.urandom(PART_BYTES // 2).hex().encode())])
    return directory


@pytest.fixture
def source(directory: Path) -> Iterator[Source]:
    source = open_source(str(directory))
    yield source
    source.close()


class Guarded:
    """The downloads, for the user that a header names."""

    def __init__(self, source: Source) -> None:
        self._application = Starlette(routes=[Route(PATH, DownloadApplication(source))])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope["headers"])[b"user"].decode()
        if name:
            scope[SCOPE_KEY] = Viewer(WebUser(name, UserEntry(name, Role.LOOK, "token", "")), False, lambda: True)
        await self._application(scope, receive, send)


class Served:
    """The downloads of a source on a socket, by a clock of the test's own."""

    def __init__(self, source: Source) -> None:
        self.now = 0.0
        self.state = ServerState()
        self.connections = Connections(Guarded(source), clock=lambda: self.now)
        self._config = uvicorn.Config(self.connections, log_config=None, lifespan="off")
        self._config.load()
        self._listener = bind(Address("127.0.0.1", 0))
        listen(self._listener)
        self.address = self._listener.getsockname()

    async def __aenter__(self) -> Served:
        made: Callable[..., asyncio.Protocol] = self._config.http_protocol_class
        protocol = partial(made, config=self._config, server_state=self.state, app_state={})
        self._accepting = asyncio.create_task(self.connections.accept(self._listener, protocol, None))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._accepting.cancel()
        with suppress(asyncio.CancelledError):
            await self._accepting
        self._listener.close()

    async def unread(self, clients: ExitStack, user: bytes = b"") -> str:
        """Ask for a download, and read no more than the status."""
        client = clients.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, self.address)
        await loop.sock_sendall(client, REQUEST % user)
        return (await loop.sock_recv(client, 12)).decode()

    async def read(self, user: bytes = b"") -> bytes:
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(REQUEST % user)
        answer = await reader.read()
        writer.close()
        return answer


def open_logs(directory: Path) -> int:
    files = Path("/proc/self/fd").iterdir()
    return sum(os.path.exists(each) and os.readlink(each).startswith(str(directory / "large-0")) for each in files)


def test_downloads_that_nobody_reads_give_their_places_to_others(source: Source, directory: Path) -> None:
    async def scenario() -> None:
        async with Served(source) as served:
            with ExitStack() as clients:
                assert [await served.unread(clients) for _ in range(4)] == ["HTTP/1.1 200"] * 4
                busy = await served.read()
                assert busy.startswith(b"HTTP/1.1 503")
                assert b"4 downloads are running already" in busy
                served.now = 29.0
                served.connections.close_late()
                assert len(served.state.tasks) >= 4  # That of the refusal may end after its last byte.
                while served.state.tasks:  # The last of them may only now have filled its buffers.
                    served.now += 1
                    await asyncio.sleep(0.01)
                assert open_logs(directory) == 0
                whole = await served.read()
                assert whole.startswith(b"HTTP/1.1 200")
                assert whole.count(b'"offset":') == PARTS

    asyncio.run(asyncio.wait_for(scenario(), SECONDS))


def test_a_user_leaves_places_for_others(source: Source) -> None:
    async def scenario() -> None:
        async with Served(source) as served:
            with ExitStack() as clients:
                statuses = [await served.unread(clients, b"eve") for _ in range(3)]
                assert statuses == ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 503"]
                assert (await served.read(b"ana")).count(b'"offset":') == PARTS
            while served.state.tasks:
                await asyncio.sleep(0.01)
            assert (await served.read(b"eve")).count(b'"offset":') == PARTS

    asyncio.run(asyncio.wait_for(scenario(), SECONDS))
