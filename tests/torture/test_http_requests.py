"""Servers that fail on a request, do not finish their answer, or serve no one else are found."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.torture.frames import Outcome
from tests.torture.http_requests import Page, others_are_served, send_requests

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
GOOD = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@contextmanager
def server(reply: bytes | None) -> Iterator[str]:
    """It answers every connection with this; None neither answers nor closes. Its address."""
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connections.append(listening.accept()[0])
            except OSError:
                return
            if reply is not None:
                connections[-1].sendall(reply)
                connections[-1].shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        worker = threading.Thread(target=serve)
        worker.start()
        try:
            yield "{}:{}".format(*listening.getsockname())
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            worker.join()
            for each in connections:
                each.close()


@pytest.mark.parametrize(
    ("reply", "answered"), [(GOOD, 1), (CONTINUE + GOOD, 1), (b"", 0), (CONTINUE, 0), (b"HTTP/0.9 has no status", 1)]
)
def test_an_answer_and_a_closed_connection_are_counted(reply: bytes, answered: int) -> None:
    with server(reply.removeprefix(b"HTTP/0.9 ")) as address:
        assert send_requests(address, [REQUEST]) == Outcome(1, answered, 1 - answered, [])


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (None, "neither answered nor closed"),
        (GOOD[:-1], "not answered completely"),
        (GOOD[:20], "not answered completely"),
        (b"HTTP/1.0 500 Oh\r\n\r\n", "answered with 500"),
    ],
)
def test_a_bad_answer_is_found(reply: bytes | None, what: str) -> None:
    with server(reply) as address:
        found = send_requests(address, [REQUEST], 0.2 if reply is None else 20).findings
    assert [what in each for each in found] == [True]


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (GOOD.replace(b"[]", b"ab"), "without the right"),
        (GOOD.replace(b"200", b"503"), "answered with 503"),
        (b"", "was not answered while"),
    ],
)
def test_a_client_that_is_not_served_is_found(reply: bytes, what: str) -> None:
    with server(reply) as address:
        found = others_are_served([Page(address, "/subjects")], "Bearer x", "ab")
    assert [what in each for each in found] == [True]
