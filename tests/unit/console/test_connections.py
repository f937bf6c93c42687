"""Which connections of the console are closed, and when, by a clock of the test's own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from duralog.console.access import Application, Message, Receive, Scope, Send
from duralog.console.connections import MOST_CONNECTIONS, Connections, most_connections

HOME = ("127.0.0.1", 8090)


class Desk:
    """Connections whose sockets go nowhere."""

    def __init__(self, application: Application, most: int = 8) -> None:
        self.now = 0.0
        self.connections = Connections(application, most=most, clock=lambda: self.now)
        self.closed: list[int] = []
        self.sockets: list[socket.socket] = []

    def open(self, port: int, network: str = "10.0.0.1") -> None:
        connected, other = socket.socketpair()
        self.sockets += [connected, other]

        def close() -> None:
            self.closed.append(port)
            connected.close()

        self.connections.add(((network, port), HOME), connected, network).close_with(close)

    def scope(self, port: int, kind: str = "http", network: str = "10.0.0.1") -> Scope:
        return {"type": kind, "client": (network, port), "server": HOME}

    def late(self, at: float) -> list[int]:
        self.now = at
        self.connections.close_late()
        closed, self.closed = self.closed, []
        return closed


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    made: list[Desk] = []
    yield made
    for desk in made:
        for each in desk.sockets:
            each.close()


def desk_of(desks: list[Desk], application: Application, most: int = 8) -> Desk:
    desks.append(Desk(application, most))
    return desks[-1]


async def nothing(*_: Any) -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def taken(_: Message) -> None:
    pass


async def answer(_: Scope, __: Receive, ___: Send) -> None:
    pass


def test_a_connection_has_seconds_for_a_request_and_longer_for_the_next(desks: list[Desk]) -> None:
    desk = desk_of(desks, answer)
    desk.open(1)
    desk.open(2)
    asyncio.run(desk.connections(desk.scope(2), nothing, taken))
    assert desk.late(8) == []
    assert desk.late(9) == [1]
    assert desk.late(30) == []
    assert desk.late(31) == [2]


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_request_at_work_and_a_socket_may_last(desks: list[Desk], kind: str) -> None:
    found = []

    async def long(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        found.append(desk.late(100_000))

    desk = desk_of(desks, long)
    desk.open(1)
    asyncio.run(desk.connections(desk.scope(1, kind), nothing, taken))
    assert found == [[]]
    assert desk.late(100_031) == [1]


def test_a_client_that_does_not_send_its_body_is_late(desks: list[Desk]) -> None:
    parts = [(b"half", 5.0, []), (b"", 14.0, [1])]

    async def receive() -> Message:
        body, at, late = parts.pop(0)
        assert desk.late(at) == late
        return {"type": "http.request", "body": body, "more_body": True}

    async def read(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        await receive()

    desk = desk_of(desks, read)
    desk.open(1)
    asyncio.run(desk.connections(desk.scope(1), receive, taken))
    assert parts == []


def test_a_client_that_does_not_read_its_answer_is_late(desks: list[Desk]) -> None:
    waits = [(0.0, []), (29.0, []), (58.0, []), (89.0, [1])]

    async def send(_: Message) -> None:
        at, late = waits.pop(0)
        assert desk.late(at) == late

    async def write(_: Scope, __: Receive, send: Send) -> None:
        for _part in range(4):
            await send({"type": "http.response.body"})

    desk = desk_of(desks, write)
    desk.open(1)
    asyncio.run(desk.connections(desk.scope(1), nothing, send))
    assert waits == []


def test_the_one_that_waits_longest_makes_room(desks: list[Desk], caplog: pytest.LogCaptureFixture) -> None:
    desk = desk_of(desks, answer, most=4)
    for port, network in enumerate(("10.0.0.1", "10.0.0.2", "10.0.0.2")):
        desk.now = port / 10
        assert desk.connections.make_room(network)
        desk.open(port, network)
    assert desk.connections.make_room("10.0.0.2")
    assert desk.closed == [1], "the oldest of the network that has half of them"
    desk.open(3, "10.0.0.3")
    desk.open(4, "10.0.0.4")
    assert desk.connections.make_room("10.0.0.5")
    assert desk.closed == [1, 0], "the oldest of all, if all are taken"
    desk.now = 61.0
    desk.connections.close_late()
    assert [each.getMessage().split("; ")[1].split()[0] for each in caplog.records] == ["1", "1"]


def test_none_makes_room_if_all_are_at_work(desks: list[Desk]) -> None:
    async def crowd() -> None:
        done = asyncio.Event()

        async def work(*_: Any) -> None:
            await done.wait()

        desk = desk_of(desks, work, most=4)
        tasks = []
        for port in range(2):
            desk.open(port)
            tasks.append(asyncio.create_task(desk.connections(desk.scope(port), nothing, taken)))
        await asyncio.sleep(0)
        assert not desk.connections.make_room("10.0.0.1")
        assert desk.connections.make_room("10.0.0.2")
        desk.sockets[0].close()
        assert desk.connections.make_room("10.0.0.1"), "its client has left"
        assert desk.closed == []
        done.set()
        await asyncio.gather(*tasks)

    asyncio.run(crowd())


def test_half_of_the_descriptors_are_for_connections() -> None:
    assert most_connections(1_024) == 512
    assert most_connections(1 << 20) == most_connections(-1) == MOST_CONNECTIONS
