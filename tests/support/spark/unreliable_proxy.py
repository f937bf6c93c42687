"""A proxy between a client of S3 and its server that spoils the answers a test chooses.

It listens on loopback, forwards each request, and hands the whole answer to `spoil`, which returns the bytes to send.
A spoiled answer ends its connection, as a dying load balancer would.
"""

from __future__ import annotations

import http.client
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """A request, and what the server answers."""

    method: str
    path: str
    """With the query."""
    number: int
    """How many requests came before."""
    head: bytes
    """The status line and the headers, with the empty line that ends them."""
    body: bytes

    @property
    def whole(self) -> bytes:
        return self.head + self.body

    @property
    def is_listing(self) -> bool:
        return "list-type=2" in self.path

    @property
    def kind(self) -> str:
        """The method, and what it is about: a folder, or a kind of file."""
        if self.is_listing:
            return f"LIST {parse_qs(urlsplit(self.path).query).get('prefix', [''])[0]}"
        name = urlsplit(self.path).path.rpartition("/")[2]
        return f"{self.method} {name.rpartition('.')[2]}"


Spoil = Callable[[Answer], "bytes | Iterable[bytes] | None"]
"""What is sent instead of the whole answer, at once or piece by piece; None to send it whole."""


def cut_in_headers(answer: Answer) -> bytes:
    """The line with the length is the last one, and is not whole."""
    return answer.head[: answer.head.index(b"Content-Length: ") + len("Content-Length: ") + 1]


def cut_in_body(answer: Answer) -> bytes:
    return answer.head + answer.body[: len(answer.body) // 2]


def cut_without_length(answer: Answer) -> bytes:
    """The body ends with the connection, as far as the client can see."""
    return cut_in_body(answer).replace(b"Content-Length: ", b"X-Length: ")


def drop(_: Answer) -> bytes:
    return b""


def repeat(answer: Answer) -> bytes:
    return answer.whole * 2


def dribble(answer: Answer) -> Iterator[bytes]:
    """All of it, in small pieces with pauses, also within the headers."""
    step = max(len(answer.whole) // 16, 1)
    for begin in range(0, len(answer.whole), step):
        yield answer.whole[begin : begin + step]
        time.sleep(0.002)


def _keep_whole(_: Answer) -> None:
    return None


class UnreliableProxy:
    """Any number of connections at a time."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._lock = threading.Lock()
        self.address = ""
        self.reset()

    def reset(self, spoil: Spoil = _keep_whole, *, page: int = 1000) -> None:
        """Forget what came, and spoil these answers from now on. A page of a listing has this many entries."""
        with self._lock:
            self._spoil = spoil
            self._page = page
            self.answers: list[Answer] = []
            self.spoiled: list[Answer] = []

    def answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[bytes | Iterable[bytes], bool]:
        """What goes back, and whether the connection lives on."""
        connection = http.client.HTTPConnection(*self._upstream, timeout=30)
        try:
            connection.request(method, path.replace("max-keys=1000", f"max-keys={self._page}"), body, headers)
            response = connection.getresponse()
            content = response.read()
            lines = [f"HTTP/1.1 {response.status} {response.reason}"]
            for name, value in response.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    lines.append(f"{name}: {value}")
            length = response.getheader("content-length") if method == "HEAD" else str(len(content))
            lines.append(f"Content-Length: {length or 0}")
            head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        finally:
            connection.close()
        with self._lock:
            answer = Answer(method, path, len(self.answers), head, b"" if method == "HEAD" else content)
            self.answers.append(answer)
            spoiled = self._spoil(answer)
            if spoiled is not None:
                self.spoiled.append(answer)
        return (answer.whole, True) if spoiled is None else (spoiled, False)


@contextmanager
def unreliable_proxy(upstream: tuple[str, int]) -> Iterator[UnreliableProxy]:
    proxy = UnreliableProxy(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = self.rfile.read(length)
            sent, lives_on = proxy.answer(self.command, self.path, dict(self.headers.items()), body)
            for part in [sent] if isinstance(sent, bytes) else sent:
                self.wfile.write(part)
                self.wfile.flush()
            self.close_connection = not lives_on

        do_GET = do_HEAD = forward  # noqa: N815 (the names of the base class)

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        proxy.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
