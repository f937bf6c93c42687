"""HTTP on its own threads, for `/metrics` and the schema registry: a bounded number of requests at a time.

| a client that | is |
|---|---|
| takes long to send its request, be it byte by byte, or to read the answer | closed after `SLOWEST_CLIENT_SECONDS` |
| sends more headers than `_LARGEST_HEADERS_BYTES`, or a larger body than the server takes | answered with 431 or 413 |
| sends a body in chunks, without its length | answered with 411 |
| asks for another host than this one (`duralog.broker.net.http_hosts`) | answered with 421 |
| is a browser that shows a page of another site | answered with 403 |
| has no password or token, if there are users (`duralog.broker.security.web_users`) | answered with 401, or 429 |
| comes while `_MOST_CONNECTIONS` are served | in the kernel's queue until one of them has ended |

So neither memory nor threads grow with the number of clients. A connection has one request.
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
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from time import monotonic
from typing import Any

from duralog.broker.net.http_hosts import HttpHosts, is_of_another_site
from duralog.broker.net.listening import Address, WebAddress
from duralog.broker.net.log_lines import LogLines, error_text
from duralog.broker.security.web_users import Role, TooManyFailures, WebUser, WebUsers

SLOWEST_CLIENT_SECONDS = 2.0
_LARGEST_HEADERS_BYTES = 8192
_RECEIVED_BYTES = 1 << 16
_SENT_BYTES = 1 << 14
_MOST_CONNECTIONS = 16
_WAITING_CONNECTIONS = 64
_STOP_CHECK_SECONDS = 0.1
_PAUSE_SECONDS = 0.1
_ENDS_OF_HEADERS = (b"\r\n\r\n", b"\n\n")


class HttpServer:
    """Serves from `__init__` to `close`."""

    def __init__(self, place: WebAddress, handler: type[HttpHandler], name: str, log_lines: LogLines) -> None:
        """`name` is what it serves, for its thread and log lines."""
        bound = place.bound
        try:
            self._server = _Server(place, handler, name, log_lines)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve {name} on {bound}: {error.strerror}") from error
        self.address = Address(bound.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_CHECK_SECONDS,), name=f"duralog-{name}", daemon=True
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

    def __init__(self, place: WebAddress, handler: type[HttpHandler], name: str, log_lines: LogLines) -> None:
        address = place.bound
        self._name = name
        self._tls = place.tls
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
            request.settimeout(SLOWEST_CLIENT_SECONDS)
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
            self._log_lines.warn(
                f"failed {self._name}", f"a TLS handshake for {self._name} failed: {error_text(error)}"
            )
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
            self._log_lines.warn(f"failed {self._name}", f"a request for {self._name} failed: {error_text(error)}")


def _values(headers: bytes, name: bytes) -> list[bytes]:
    lines = (line.partition(b":") for line in headers.splitlines())
    return [value.strip() for found, _, value in lines if found.lower() == name]


def _expects_to_continue(headers: bytes) -> bool:
    """A client with a large body waits for the server to be ready, before it sends the body."""
    return any(value.lower() == b"100-continue" for value in _values(headers, b"expect"))


def _end(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


class HttpHandler(BaseHTTPRequestHandler):
    """A subclass for each server has its names, users and methods."""

    hosts: HttpHosts
    users: WebUsers | None
    user: WebUser | None = None
    """Who sent the request, once it is admitted."""
    largest_body_bytes = 0
    requestline, request_version = "", "HTTP/1.0"
    """Until a request has said so."""

    def handle(self) -> None:
        """One request, received completely before it is parsed."""
        received = self._receive()
        if received is None:
            return
        self.rfile = io.BytesIO(received)
        self.connection.settimeout(SLOWEST_CLIENT_SECONDS)
        self.handle_one_request()

    def _receive(self) -> bytes | None:
        """None if it does not arrive in time, or is too large."""
        until = monotonic() + SLOWEST_CLIENT_SECONDS
        received = bytearray()
        expected: int | None = None
        while expected is None or len(received) < expected:
            seconds = until - monotonic()
            if seconds <= 0:
                return None
            self.connection.settimeout(seconds)
            try:
                part = self.connection.recv(_RECEIVED_BYTES if expected else _LARGEST_HEADERS_BYTES)
            except TimeoutError:
                return None
            if not part:
                return None
            received += part
            if expected is None:
                ends = [received.find(end) + len(end) for end in _ENDS_OF_HEADERS if end in received]
                if ends:
                    body_bytes = self._body_bytes(bytes(received[: min(ends)]))
                    if body_bytes is None:
                        return None
                    expected = min(ends) + body_bytes
                    if len(received) < expected and _expects_to_continue(bytes(received[: min(ends)])):
                        self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                elif len(received) > _LARGEST_HEADERS_BYTES:
                    self.refuse(431, f"the headers of a request may have {_LARGEST_HEADERS_BYTES} bytes")
                    return None
        return bytes(received)

    def _body_bytes(self, headers: bytes) -> int | None:
        """The length of the body that these headers announce. None if it is refused."""
        if not self.largest_body_bytes:
            return 0
        sizes = _values(headers, b"content-length")
        if _values(headers, b"transfer-encoding"):
            self.refuse(411, "send the body with a Content-Length, not chunked")
            return None
        if not sizes:
            return 0
        if len(sizes) > 1 or not sizes[0].isdigit() or len(sizes[0]) > 18:
            self.refuse(400, "the Content-Length is not a number")
            return None
        if int(sizes[0]) > self.largest_body_bytes:
            self.refuse(413, f"the body of a request may have {self.largest_body_bytes} bytes")
            return None
        return int(sizes[0])

    def respond(self) -> None:
        """Answer the request: `command` is its method."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_PUT(self) -> None:
        self.respond()

    def do_DELETE(self) -> None:
        self.respond()

    def is_admitted(self, what: str, hosts_option: str, role: Role = Role.LOOK) -> bool:
        """Whether the host is right, and the user has at least this role. Answers the request if not."""
        hosts = self.headers.get_all("Host", [])
        if not self.hosts.allow(hosts):
            self.refuse(421, f"{what} are served under other names: see duralog serve {hosts_option}")
            return False
        if is_of_another_site(hosts[0], ((name.lower(), value) for name, value in self.headers.items())):
            self.refuse(403, f"a page of another site may not ask for {what}")
            return False
        if self.users is not None and (status := self._login_status(self.users, role)) != 200:
            needed = f"the role {role.label}" if status == 403 else "a password or a token"
            self.refuse(status, f"{what} are for users: this takes {needed}")
            return False
        return True

    def _login_status(self, users: WebUsers, role: Role) -> int:
        """200 for a user who may."""
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
        if found is None:
            return 401
        self.user = found
        return 200 if found.role >= role else 403

    def refuse(self, status: int, sentence: str) -> None:
        self.answer(status, "text/plain; charset=utf-8", f"{sentence}\n".encode())

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="duralog", charset="UTF-8"')
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # In pieces: with TLS, the timeout of a socket counts for each record of 16 KiB, not for all that is sent.
        until = monotonic() + SLOWEST_CLIENT_SECONDS
        for start in range(0, len(body), _SENT_BYTES):
            seconds = until - monotonic()
            if seconds <= 0:
                raise ConnectionAbortedError("the client takes too long to read the answer")
            self.connection.settimeout(seconds)
            self.wfile.write(body[start : start + _SENT_BYTES])

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""
