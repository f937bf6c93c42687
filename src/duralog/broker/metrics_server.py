"""`/metrics` over HTTP, on its own threads: a bounded number of scrapes at a time.

| a client that | is |
|---|---|
| takes long to send its request, be it byte by byte, or to read the answer | closed after `_SLOWEST_CLIENT_SECONDS` |
| sends more than `_LARGEST_REQUEST_BYTES` | answered with 431 |
| asks for another host than this one (`duralog.broker.net.http_hosts`) | answered with 421 |
| has no password or token, if there are users (`duralog.broker.security.web_users`) | answered with 401, or 429 |
| comes while `_MOST_CONNECTIONS` are served | in the kernel's queue until one of them has ended |

So neither memory nor threads grow with the number of clients. The broker's loop is asked for its numbers and nothing
else.
"""

from __future__ import annotations

import base64
import binascii
import io
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from time import monotonic
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from duralog.broker.metrics import BrokerCollector, MeasuredParts
from duralog.broker.net.http_hosts import LOOPBACK_NAMES, HttpHosts
from duralog.broker.net.listening import Address, MetricsAddress
from duralog.broker.net.log_lines import LogLines, error_text
from duralog.broker.security.web_users import TooManyFailures, WebUser, WebUsers

_SLOWEST_CLIENT_SECONDS = 2.0
_LARGEST_REQUEST_BYTES = 8192
_MOST_CONNECTIONS = 16
_WAITING_CONNECTIONS = 64
_STOP_CHECK_SECONDS = 0.1
_PAUSE_SECONDS = 0.1
_ENDS_OF_REQUESTS = (b"\r\n\r\n", b"\n\n")


class MetricsServer:
    """Serves from `__init__` to `close`."""

    def __init__(self, parts: MeasuredParts, metrics: MetricsAddress, advertised_hosts: Iterable[str]) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(parts))
        ProcessCollector(registry=registry)
        bound = metrics.bound
        names = HttpHosts(bound.host, (*LOOPBACK_NAMES, *advertised_hosts, *metrics.hosts))

        class Handler(_MetricsHandler):
            found_in = registry
            hosts = names
            users = metrics.users

        try:
            self._server = _Server(metrics, Handler, parts.runtime.log_lines)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics on {bound}: {error.strerror}") from error
        self.address = Address(bound.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_CHECK_SECONDS,), name="duralog-metrics", daemon=True
        )
        self._thread.start()

    def on_fork(self) -> None:
        """In a forked child, which does not have the serving thread: close its copy of the socket."""
        self._server.server_close()

    def close(self) -> None:
        self._server.close_connections()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = _WAITING_CONNECTIONS

    def __init__(self, metrics: MetricsAddress, handler: type[_MetricsHandler], log_lines: LogLines) -> None:
        address = metrics.bound
        self._tls = metrics.tls
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._log_lines = log_lines
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._is_closing = False
        super().__init__((address.host, address.port), handler)

    def server_bind(self) -> None:
        """Without asking the network for the name of this machine, which is not used."""
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # No descriptors are left. The client still waits: without a pause, this would spin.
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """On its own thread, as soon as there is room for one more."""
        self._room.acquire()
        with self._lock:
            self._connections.add(request)
            if self._is_closing:
                _end(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        connection = request
        try:
            if self._tls is not None:
                connection = self._encrypted(request, self._tls.context)
            if connection is not None:
                super().process_request_thread(connection, client_address)
        finally:
            self._forget(connection if connection is not None else request)

    def _encrypted(self, request: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket | None:
        """None if there is no handshake in time."""
        connection: socket.socket = request
        try:
            request.settimeout(_SLOWEST_CLIENT_SECONDS)
            encrypted = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            connection = encrypted
            with self._lock:
                self._connections.discard(request)
                self._connections.add(encrypted)
                if self._is_closing:
                    _end(encrypted)
            encrypted.do_handshake()
            return encrypted
        except (OSError, ValueError) as error:
            self._log_lines.warn("failed scrape", f"a TLS handshake for /metrics failed: {error_text(error)}")
            with self._lock:
                self._connections.discard(connection)
            connection.close()
            return None

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._connections.discard(request)
        self._room.release()

    def close_connections(self) -> None:
        """End open and new connections, so that nothing has to wait for them."""
        with self._lock:
            self._is_closing = True
            for request in self._connections:
                _end(request)

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            self._log_lines.warn("failed scrape", f"a scrape failed: {error_text(error)}")


def _end(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


class _MetricsHandler(BaseHTTPRequestHandler):
    found_in: CollectorRegistry
    hosts: HttpHosts
    users: WebUsers | None
    requestline, request_version = "", "HTTP/1.0"
    """Until a request has said so."""

    def handle(self) -> None:
        """One request, received completely before it is parsed."""
        received = self._receive()
        if received is None:
            return
        self.rfile = io.BytesIO(received)
        self.connection.settimeout(_SLOWEST_CLIENT_SECONDS)
        self.handle_one_request()

    def _receive(self) -> bytes | None:
        """None if it does not arrive in time, or is too large."""
        until = monotonic() + _SLOWEST_CLIENT_SECONDS
        received = b""
        while not any(end in received for end in _ENDS_OF_REQUESTS):
            if len(received) > _LARGEST_REQUEST_BYTES:
                self._refuse(431, f"a request may have {_LARGEST_REQUEST_BYTES} bytes")
                return None
            seconds = until - monotonic()
            if seconds <= 0:
                return None
            self.connection.settimeout(seconds)
            try:
                part = self.connection.recv(_LARGEST_REQUEST_BYTES)
            except TimeoutError:
                return None
            if not part:
                return None
            received += part
        return received

    def do_GET(self) -> None:
        if not self.hosts.allow(self.headers.get_all("Host", [])):
            self._refuse(421, "these metrics are served under other names: see duralog serve --metrics-host")
            return
        if self.users is not None and (status := self._login_status(self.users)) != 200:
            self._refuse(status, "these metrics are for users: send a password or a token")
            return
        if self.path.split("?")[0] != "/metrics":
            self._refuse(404, "there is only /metrics here")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self._answer(200, content_type, encode(self.found_in))

    def _login_status(self, users: WebUsers) -> int:
        """200 for a user."""
        given = self.headers.get_all("Authorization", [])
        scheme, _, proof = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        found: WebUser | None = None
        if scheme.lower() == "bearer":
            found = users.with_token(proof.strip())
        elif scheme.lower() == "basic":
            try:
                name, _, password = base64.b64decode(proof.strip(), validate=True).decode().partition(":")
                found = users.with_password(name, password, self.client_address[0])
            except (binascii.Error, ValueError):
                return 401
            except TooManyFailures:
                return 429
        return 401 if found is None else 200

    def _refuse(self, status: int, sentence: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="duralog", charset="UTF-8"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Scrapes are not logged."""
