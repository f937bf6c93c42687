"""`/metrics` over HTTP, in a thread of its own: one scrape at a time, whatever clients do.

A client that takes long to ask, however it goes about it, or to take the answer is dropped; others wait in the kernel's
queue meanwhile, so memory does not grow with them. The broker's loop is asked for its numbers and nothing else.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from duralog.broker.listening import Address
from duralog.broker.log_lines import LogLines, error_text
from duralog.broker.metrics import BrokerCollector

if TYPE_CHECKING:
    from duralog.broker.broker import Broker

_SLOWEST_CLIENT_SECONDS = 2.0
_STOP_CHECK_SECONDS = 0.1
_PAUSE_SECONDS = 0.1


class MetricsServer:
    """Serves from `__init__` to `close`."""

    def __init__(self, broker: Broker, address: Address) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(broker))
        ProcessCollector(registry=registry)

        class Handler(_MetricsHandler):
            found_in = registry

        try:
            self._server = _Server(address, Handler, broker.log_lines)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics on {address}: {error.strerror}") from error
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_CHECK_SECONDS,), name="duralog-metrics", daemon=True
        )
        self._thread.start()

    def on_fork(self) -> None:
        """In a forked child, which has no thread that would serve: close its copy of the socket."""
        self._server.server_close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(HTTPServer):
    def __init__(self, address: Address, handler: type[_MetricsHandler], log_lines: LogLines) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._log_lines = log_lines
        super().__init__((address.host, address.port), handler)

    def server_bind(self) -> None:
        """Without asking the network for the name of this machine, which nobody is told."""
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # There are no descriptors left. Who waits is still there: without a pause nothing but this would run.
            time.sleep(_PAUSE_SECONDS)
            raise

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            self._log_lines.warn("failed scrape", f"a scrape failed: {error_text(error)}")


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _SLOWEST_CLIENT_SECONDS
    """For each byte that is waited for, and for the whole answer."""
    found_in: CollectorRegistry

    def setup(self) -> None:
        super().setup()
        self._is_late = False
        self._until_asked = threading.Timer(_SLOWEST_CLIENT_SECONDS, self._give_up)
        self._until_asked.daemon = True
        self._until_asked.start()

    def finish(self) -> None:
        self._until_asked.cancel()
        super().finish()

    def _give_up(self) -> None:
        self._is_late = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._until_asked.cancel()
        if self._is_late:
            return
        if self.path.split("?")[0] != "/metrics":
            self.send_error(404, "there is only /metrics here")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        body = encode(self.found_in)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Scrapes are no news."""
