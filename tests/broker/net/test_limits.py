"""What clients may take: connections, idle time, bytes, requests at a time. The test runs the loop, turn by turn."""

from __future__ import annotations

import errno
import logging
import os
import resource
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.connection import Connection
from duralog.broker.net.listening import Listening
from duralog.broker.runtime import Runtime
from duralog.broker.wire import messages
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, FileSlice, RawAnswer, Request
from duralog.config import BrokerConfig
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.broker.set_clock import SetClock

API_VERSIONS, METADATA, HEARTBEAT = 18, 3, 12
BROKER = 4
"""The type of a resource with configs."""

Start = Callable[..., Broker]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def start(clock: SetClock) -> Iterator[Start]:
    """Makes a broker with these configs. Its timers go by the test's clock, and its loop by `turn`."""
    brokers: list[Broker] = []

    def start(**configs: object) -> Broker:
        config = BrokerConfig.of({name.replace("_", "."): value for name, value in configs.items()})
        brokers.append(Broker(None, config=config, timer_clock=clock).open())
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Broker], RawClient]]:
    clients: list[RawClient] = []

    def connect(broker: Broker) -> RawClient:
        clients.append(RawClient("127.0.0.1", broker.address.port))
        turn(broker)
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


Connect = Callable[[Broker], RawClient]


def turn(broker: Broker, turns: int = 5) -> None:
    for _ in range(turns):
        broker.run_pending()


def is_served(broker: Broker, client: RawClient) -> bool:
    client.send(API_VERSIONS, 0)
    turn(broker)
    try:
        return bool(client.receive(API_VERSIONS, 0).error_code == 0)
    except ConnectionError:
        return False


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class TestConnections:
    def test_no_more_than_max_connections(
        self, start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = start(max_connections=2)
        first, second, third = (connect(broker) for _ in range(3))
        assert third.is_closed_by_peer()
        assert is_served(broker, first)
        assert is_served(broker, second)
        assert lines(caplog) == [
            "a connection from 127.0.0.1 is refused: there are 2 connections, max.connections allows no more"
        ]
        first.close()
        turn(broker)
        assert is_served(broker, connect(broker))

    def test_no_more_than_max_connections_per_ip(
        self, start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = start(max_connections_per_ip=1)
        first, second = connect(broker), connect(broker)
        assert second.is_closed_by_peer()
        assert is_served(broker, first)
        assert lines(caplog) == [
            "a connection from 127.0.0.1 is refused: max.connections.per.ip allows 1 from one address"
        ]

    def test_some_descriptors_are_left_to_the_store(
        self, start: Start, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = start()
        most = 8 * (connect(broker).socket.fileno() + 1)
        monkeypatch.setattr("resource.getrlimit", lambda _: (most // 7, most))
        assert connect(broker).is_closed_by_peer()
        (line,) = lines(caplog)
        assert line.endswith("the descriptors that are left are for files (ulimit -n)")
        for enough in (most, resource.RLIM_INFINITY):
            monkeypatch.setattr("resource.getrlimit", lambda _, enough=enough: (enough, enough))
            assert is_served(broker, connect(broker))

    def test_one_that_the_system_cannot_watch_counts_for_nothing(
        self, start: Start, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        broker = start(max_connections=1)
        with monkeypatch.context() as full:
            full.setattr(broker.loop, "watch", fail)
            assert connect(broker).is_closed_by_peer()
        assert lines(caplog) == ["a connection from 127.0.0.1 cannot be served: [Errno 28] No space left on device"]
        assert is_served(broker, connect(broker))

    @pytest.mark.parametrize("host", ["127.0.0.1 ", "localhost"])
    def test_other_numbers_for_single_addresses(self, start: Start, connect: Connect, host: str) -> None:
        broker = start(max_connections_per_ip=1, max_connections_per_ip_overrides=f"10.0.0.1:5, {host}: 2")
        first, second, third = (connect(broker) for _ in range(3))
        assert third.is_closed_by_peer()
        assert is_served(broker, first)
        assert is_served(broker, second)

    def test_limits_that_change_while_the_broker_runs(self, start: Start, connect: Connect) -> None:
        broker = start(max_connections=1)
        first = connect(broker)
        assert connect(broker).is_closed_by_peer()
        broker.store.alter_configs_of(BROKER, "", {"max.connections": "2"})
        assert is_served(broker, connect(broker))
        assert is_served(broker, first)
        assert connect(broker).is_closed_by_peer()

    def test_a_limit_of_one_listener(self, clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
        config = BrokerConfig.of(
            {
                "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "listener.name.outside.max.connections": "1",
                "max.connections": "4",
            }
        )
        clients: list[RawClient] = []
        with Broker(None, config=config, listening=Listening.of(config), timer_clock=clock) as broker:

            def connect(listener: str) -> RawClient:
                clients.append(RawClient("127.0.0.1", broker.addresses[listener].port))
                turn(broker)
                return clients[-1]

            first = connect("OUTSIDE")
            assert is_served(broker, first)
            assert connect("OUTSIDE").is_closed_by_peer()
            assert lines(caplog)[-1].endswith("is refused: listener.name.outside.max.connections allows 1")
            assert is_served(broker, connect("INSIDE"))
            assert is_served(broker, connect("INSIDE"))
            first.close()
            turn(broker)
            assert is_served(broker, connect("OUTSIDE"))
            broker.store.alter_configs_of(BROKER, "", {"listener.name.outside.max.connections": "2"})
            assert is_served(broker, connect("OUTSIDE"))
            assert connect("INSIDE").is_closed_by_peer(), "the limit of the broker counts, too"
            for client in clients:
                client.close()


class TestIdle:
    def test_a_client_that_says_nothing(
        self, start: Start, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = start(connections_max_idle_ms=10_000)
        silent, busy = connect(broker), connect(broker)
        for _ in range(5):
            clock.now_ms += 2600
            assert is_served(broker, busy)
        assert silent.is_closed_by_peer()
        assert is_served(broker, busy)
        assert lines(caplog) == ["the connection from 127.0.0.1 is closed: nothing was heard from it for 10000 ms"]

    def test_whatever_goes_wrong_with_one_they_are_looked_at_again(
        self, start: Start, connect: Connect, clock: SetClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        broker = start(connections_max_idle_ms=10_000)
        silent = connect(broker)
        clock.now_ms += 12_600
        with monkeypatch.context() as failing:
            failing.setattr(Connection, "close", fail)
            turn(broker)
        clock.now_ms += 2600
        turn(broker)
        assert silent.is_closed_by_peer()

    def test_a_client_that_sends_half_a_request(
        self, start: Start, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = start(connections_max_idle_ms=10_000)
        client = connect(broker)
        client.send_bytes(struct.pack(">i", 1000) + b"half of it")
        turn(broker)
        clock.now_ms += 13_000
        turn(broker)
        assert client.is_closed_by_peer()
        (line,) = lines(caplog)
        assert line.endswith("it has sent 14 bytes of a request, and nothing for 10000 ms")

    def test_a_client_that_reads_nothing(
        self,
        start: Start,
        connect: Connect,
        clock: SetClock,
        caplog: pytest.LogCaptureFixture,
        tmp_path: Path,
    ) -> None:
        broker = start(connections_max_idle_ms=10_000)
        size = 64 << 20
        with (tmp_path / "large").open("w+b") as file:
            os.ftruncate(file.fileno(), size)
            replace_heartbeat(broker, lambda _: RawAnswer([b"\0\0", FileSlice(file, 0, size)]))
            client, other = connect(broker), connect(broker)
            client.send(HEARTBEAT, 0)
            turn(broker, 50)
            assert broker.server.connections[0].is_owed
            assert is_served(broker, other)
            clock.now_ms += 13_000
            other.send(API_VERSIONS, 0)
            turn(broker)
        assert broker.server.connection_count == 1
        (line,) = lines(caplog)
        assert line.endswith("it has read nothing for 10000 ms")

    def test_a_client_whose_request_waits_is_not_idle(self, start: Start, connect: Connect, clock: SetClock) -> None:
        broker = start(connections_max_idle_ms=10_000)
        later = DelayedAnswer()
        replace_heartbeat(broker, lambda _: later)
        client = connect(broker)
        client.send(HEARTBEAT, 0)
        turn(broker)
        clock.now_ms += 60_000
        turn(broker)
        later.answer({"error_code": 4})
        turn(broker)
        assert client.receive(HEARTBEAT, 0).error_code == 4

    def test_one_that_has_ended_its_side_does_not_wait_for_ever(
        self, start: Start, connect: Connect, clock: SetClock
    ) -> None:
        broker = start(connections_max_idle_ms=10_000)
        replace_heartbeat(broker, lambda _: DelayedAnswer())
        client = connect(broker)
        client.send(HEARTBEAT, 0)
        turn(broker)
        client.socket.shutdown(socket.SHUT_WR)
        turn(broker)
        assert broker.server.connection_count == 1
        clock.now_ms += 60_000
        turn(broker)
        assert broker.server.connection_count == 0

    def test_a_negative_limit_is_none(self, start: Start, connect: Connect, clock: SetClock) -> None:
        broker = start(connections_max_idle_ms=-1)
        client = connect(broker)
        clock.now_ms += 10**12
        turn(broker)
        assert is_served(broker, client)


class TestRequests:
    def test_a_request_at_the_limit_is_read_and_one_above_it_is_not(
        self, start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker = start(socket_request_max_bytes=1000)
        client = connect(broker)
        frame = request_frame(API_VERSIONS, 0, 1, b"x" * (1000 - len(request_frame(API_VERSIONS, 0, 1, b"")) + 4))
        assert struct.unpack_from(">i", frame) == (1000,)
        client.send_bytes(frame)
        turn(broker)
        assert client.receive(API_VERSIONS, 0).error_code == 0
        client.send_bytes(struct.pack(">i", 1001))
        turn(broker)
        assert client.is_closed_by_peer()
        (line,) = lines(caplog)
        assert line.endswith("a request says it has 1001 bytes; from 0 to 1000 are allowed")

    def test_no_more_than_queued_max_requests_are_worked_on(self, start: Start, connect: Connect) -> None:
        broker = start(queued_max_requests=2)
        go_on = threading.Event()
        begun: list[str] = []

        def handle(runtime: Runtime, request: Request) -> DelayedAnswer:
            later = DelayedAnswer()
            begun.append(request.message.group_id)
            runtime.background.run(go_on.wait, lambda _, __: later.answer({"error_code": 0}), later)
            return later

        replace_heartbeat(broker, handle)
        clients = [connect(broker) for _ in range(5)]
        for number, client in enumerate(clients):
            client.send(HEARTBEAT, 0, {"group_id": str(number)})
            turn(broker)
        assert begun == ["0", "1"]
        # It may have asked for no answer: what it has sent counts.
        gone = clients.pop(2)
        gone.close()
        # Not even what is quickly answered begins: it waits in the client's socket, where it costs nothing.
        clients.append(connect(broker))
        clients[-1].send(HEARTBEAT, 0, {"group_id": "5"})
        turn(broker)
        assert begun == ["0", "1"]
        go_on.set()
        for client in clients:
            while not client_has_answer(client):
                turn(broker)
            assert client.receive(HEARTBEAT, 0).error_code == 0
        assert begun == ["0", "1", "2", "3", "4", "5"]

    def test_those_who_waited_for_room_go_on_a_few_at_a_time(self, start: Start, connect: Connect) -> None:
        broker = start(queued_max_requests=1)
        go_on = threading.Event()
        begun: list[str] = []

        def handle(runtime: Runtime, request: Request) -> DelayedAnswer | Fields:
            begun.append(request.message.group_id)
            if request.message.group_id != "slow":
                return {"error_code": 0}
            later = DelayedAnswer()
            runtime.background.run(go_on.wait, lambda _, __: later.answer({"error_code": 0}), later)
            return later

        replace_heartbeat(broker, handle)
        for number in range(51):
            connect(broker).send(HEARTBEAT, 0, {"group_id": str(number or "slow")})
            turn(broker)
        assert begun == ["slow"]
        go_on.set()
        counts = [len(begun)]
        while counts[-1] < 51:
            broker.loop.run_turn(0.01)
            counts.append(len(begun))
        assert max(after - before for before, after in pairwise(counts)) <= 16
        assert begun == ["slow", *(str(number) for number in range(1, 51))]

    def test_a_connection_that_waits_holds_no_more_than_a_buffer(self, start: Start, connect: Connect) -> None:
        broker = start()
        replace_heartbeat(broker, lambda _: DelayedAnswer())
        client = connect(broker)
        client.socket.settimeout(0.05)
        frame = request_frame(HEARTBEAT, 0, 1, messages.encode_request(HEARTBEAT, 0, {}))
        with suppress(TimeoutError):
            while True:
                client.send_bytes(frame * 1000)
                turn(broker)
        assert broker.server.connections[0].held_bytes <= 512 << 10


def client_has_answer(client: RawClient) -> bool:
    return bool(select.select([client.socket], [], [], 0.01)[0])


def replace_heartbeat(broker: Broker, handle: Callable[..., Answer]) -> None:
    def refuse(_: Request, error_code: int, __: str | None) -> Fields:
        return {"error_code": error_code}

    api = Api(HEARTBEAT, "Heartbeat", 0, 4, handle, refuse)
    broker.dispatcher.serve({**broker.apis, HEARTBEAT: api}, broker)
