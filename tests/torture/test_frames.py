"""Frames that a broker neither answers nor closes are found."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from tests.torture.frames import Outcome, send_frames

FRAME = struct.pack(">ihhi", 8, 18, 0, 7)


def outcome_of(reply: bytes | None, seconds: float = 20) -> Outcome:
    """Of one frame, to a server that replies this and closes; None neither replies nor closes."""
    has_given_up = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            while connection.recv(64):
                pass
            if reply is None:
                has_given_up.wait(20)
            else:
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = threading.Thread(target=serve)
        worker.start()
        try:
            return send_frames(address_of(server), [FRAME], answer_seconds=seconds)
        finally:
            has_given_up.set()
            worker.join()


def address_of(server: socket.socket) -> str:
    host, port = server.getsockname()
    return f"{host}:{port}"


def test_an_answer_and_a_closed_connection_are_counted() -> None:
    assert outcome_of(struct.pack(">ii", 4, 7)) == Outcome(sent=1, answered=1, closed=0, findings=[])
    assert outcome_of(b"") == Outcome(sent=1, answered=0, closed=1, findings=[])


@pytest.mark.parametrize(
    ("reply", "seconds", "what"),
    [(None, 0.2, "neither answered nor closed"), (struct.pack(">iih", 100, 7, 0), 20, "6 of 100 bytes")],
)
def test_a_frame_without_a_whole_answer_is_found(reply: bytes | None, seconds: float, what: str) -> None:
    found = outcome_of(reply, seconds)
    assert (found.sent, found.answered, found.closed) == (1, 0, 0)
    assert [what in each and "API 18, version 0" in each for each in found.findings] == [True]


def test_a_broker_that_takes_no_connection_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = address_of(server)
    assert "found no broker" in send_frames(address, [FRAME]).findings[0]
