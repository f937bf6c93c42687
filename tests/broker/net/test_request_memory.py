"""Clients that make the broker hold memory: half requests, unread answers, and honest clients next to them."""

from __future__ import annotations

import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net.request_memory import default_limit_bytes, machine_memory_bytes
from duralog.broker.wire import messages
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, FileSlice, RawAnswer, Request
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.broker.set_clock import SetClock

PRODUCE, API_VERSIONS, HEARTBEAT = 0, 18, 12
MB = 1 << 20
LARGEST = 4 * MB
LIMIT = 16 * MB
MOST = LIMIT + LARGEST
"""What the requests of all connections may hold: the limit, and one request more."""

Start = Callable[..., Broker]
Connect = Callable[[], RawClient]


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def broker(clock: SetClock) -> Iterator[Broker]:
    """Its timers follow the test's clock, and its loop runs in `turn`."""
    config = BrokerConfig.of({"socket.request.max.bytes": LARGEST, "queued.max.request.bytes": LIMIT})
    broker = Broker(None, config=config, timer_clock=clock).open()
    replace_heartbeat(broker, lambda _: {"error_code": 0})
    # A worker thread that decodes a large request has its own time.
    broker.dispatcher.large_requests = None
    yield broker
    broker.close()


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    clients: list[RawClient] = []

    def connect() -> RawClient:
        clients.append(RawClient("127.0.0.1", broker.address.port))
        turn(broker)
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def turn(broker: Broker, turns: int = 5) -> None:
    for _ in range(turns):
        broker.run_pending()


def pass_seconds(broker: Broker, clock: SetClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.now_ms += 1000
        turn(broker)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def has_data(client: RawClient) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])


def is_closed(client: RawClient) -> bool:
    """Whether the broker has closed the connection. Waits for that, or for an answer."""
    try:
        return client.socket.recv(1, socket.MSG_PEEK) == b""
    except ConnectionError:
        return True


def try_send(client: RawClient, data: bytes | memoryview) -> int:
    """Send what the socket takes without waiting."""
    client.socket.setblocking(False)
    try:
        return client.socket.send(data)
    except (BlockingIOError, ConnectionError):
        return 0
    finally:
        client.socket.settimeout(60)


def sends(client: RawClient, data: bytes, broker: Broker) -> int:
    """Send as much as the broker takes. Returns how many bytes that is."""
    view, idle = memoryview(data), 0
    sent = 0
    while sent < len(view) and idle < 20:
        count = try_send(client, view[sent : sent + (256 << 10)])
        idle = 0 if count else idle + 1
        if idle > 2:
            time.sleep(0.002)  # On a busy machine the kernel opens the window a moment after the broker has read.
        sent += count
        turn(broker, 2)
    return sent


def half_request(size: int, sent: int) -> bytes:
    return struct.pack(">i", size) + bytes(sent)


def heartbeat(size: int, group: str = "g") -> bytes:
    """A whole request of about this size: what follows its fields is ignored."""
    body = messages.encode_request(HEARTBEAT, 0, {"group_id": group})
    return request_frame(HEARTBEAT, 0, 1, body + bytes(size))


def replace_heartbeat(broker: Broker, handle: Callable[[Request], Answer]) -> None:
    def refuse(_: Request, error_code: int, __: str | None) -> Fields:
        return {"error_code": error_code}

    broker.dispatcher.serve({**broker.apis, HEARTBEAT: Api(HEARTBEAT, "Heartbeat", 0, 4, handle, refuse)}, broker)


def buffers_bytes(broker: Broker) -> int:
    """The buffers that connections have, counted one by one."""
    found = {id(area.obj): len(area) for area in (one._reader._area for one in broker.server.connections)}
    return sum(found.values())


def is_served(broker: Broker, client: RawClient) -> bool:
    client.send(API_VERSIONS, 0)
    turn(broker)
    return has_data(client) and bool(client.receive(API_VERSIONS, 0).error_code == 0)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class TestHalfRequests:
    def test_all_together_hold_no_more_than_the_limit_and_one_request(self, broker: Broker, connect: Connect) -> None:
        for client in [connect() for _ in range(30)]:
            sends(client, half_request(LARGEST, LARGEST - 100), broker)
            assert broker.server.memory.used_bytes <= MOST
            assert buffers_bytes(broker) <= MOST
        assert broker.server.memory.used_bytes == buffers_bytes(broker) > LIMIT - LARGEST

    def test_the_process_does_not_grow_by_what_is_announced(self) -> None:
        config = BrokerConfig.of({"queued.max.request.bytes": 100 * MB})
        broker = Broker(None, config=config).open()
        clients = [RawClient("127.0.0.1", broker.address.port) for _ in range(12)]
        try:
            turn(broker)
            data = half_request(100 * MB, 40 * MB)
            before = resident_bytes()
            for client in clients:
                sends(client, data, broker)
            assert resident_bytes() - before < 280 * MB
        finally:
            for client in clients:
                client.close()
            broker.close()

    def test_an_announcement_alone_costs_nothing(self, broker: Broker, connect: Connect) -> None:
        for client in [connect() for _ in range(50)]:
            client.send_bytes(half_request(LARGEST, 10))
        turn(broker, 20)
        assert broker.server.memory.used_bytes <= 50 * 1000

    def test_honest_clients_are_served_meanwhile(self, broker: Broker, connect: Connect) -> None:
        for client in [connect() for _ in range(12)]:
            sends(client, half_request(LARGEST, LARGEST - 100), broker)
        small, large = connect(), connect()
        assert is_served(broker, small)
        for _ in range(3):
            frame = heartbeat(MB)
            assert sends(large, frame, broker) == len(frame)
            turn(broker)
            assert large.receive(HEARTBEAT, 0).error_code == 0
        assert is_served(broker, small)

    def test_those_that_send_nothing_are_closed_first(
        self, broker: Broker, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        hostile = [connect() for _ in range(12)]
        for client in hostile:
            sends(client, half_request(LARGEST, LARGEST - 100), broker)
        honest = [connect() for _ in range(8)]
        frame = heartbeat(LARGEST - 1000)
        sent = {client: sends(client, frame, broker) for client in honest}
        seconds = 0
        while not all(has_data(client) for client in honest) and (seconds := seconds + 1) < 60:
            pass_seconds(broker, clock, 1)
            for client in honest:
                sent[client] += sends(client, frame[sent[client] :], broker)
        assert seconds < 60
        assert [client.receive(HEARTBEAT, 0).error_code for client in honest] == [0] * len(honest)
        assert any(has_data(client) and is_closed(client) for client in hostile)
        assert broker.server.closed["slow"] > 0
        assert "is short" in lines(caplog)[0]
        assert "queued.max.request.bytes" in lines(caplog)[0]

    def test_one_that_sends_byte_by_byte_is_closed_too(self, broker: Broker, connect: Connect, clock: SetClock) -> None:
        hostile = [connect() for _ in range(12)]
        for client in hostile:
            sends(client, half_request(LARGEST, LARGEST - 1000), broker)
        for _ in range(30):
            for client in hostile:
                try_send(client, b"\0")
            pass_seconds(broker, clock, 1)
        assert broker.server.closed["slow"] > 0
        assert broker.server.memory.used_bytes <= MOST

    def test_a_slow_client_is_left_alone_as_long_as_there_is_memory(
        self, broker: Broker, connect: Connect, clock: SetClock
    ) -> None:
        slow = connect()
        frame = heartbeat(LARGEST - 1000)
        sent = sends(slow, frame[: MB * 2], broker)
        pass_seconds(broker, clock, 60)
        sends(slow, frame[sent:], broker)
        assert slow.receive(HEARTBEAT, 0).error_code == 0

    def test_honest_clients_alone_never_lose_their_connection(
        self, broker: Broker, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """All send large requests at the same time: each comes to its end, though not all fit in memory together."""
        clients = [connect() for _ in range(25)]
        frame = heartbeat(LARGEST - 1000)
        sent = dict.fromkeys(clients, 0)
        for _ in range(200):
            for client in clients:
                sent[client] += try_send(client, frame[sent[client] : sent[client] + (300 << 10)])
            turn(broker, 2)
            clock.now_ms += 100
            assert broker.server.memory.used_bytes <= MOST
            if all(count == len(frame) for count in sent.values()):
                break
        turn(broker, 50)
        assert [client.receive(HEARTBEAT, 0).error_code for client in clients] == [0] * len(clients)
        assert lines(caplog) == []
        assert broker.server.memory.used_bytes == 0

    def test_parts_of_many_requests_do_not_wait_for_each_other(
        self, broker: Broker, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What has arrived of them fills the limit, before one of them is complete."""
        clients = [connect() for _ in range(60)]
        frame = heartbeat(LARGEST - 1000)
        sent = dict.fromkeys(clients, 0)
        for client in clients:
            sent[client] += sends(client, frame[: 500 << 10], broker)
        assert broker.server.memory.used_bytes > LIMIT - 2 * MB
        turns = 0
        while not all(has_data(client) for client in clients) and (turns := turns + 1) < 2000:
            for client in clients:
                if sent[client] < len(frame):
                    sent[client] += try_send(client, frame[sent[client] : sent[client] + (300 << 10)])
            turn(broker, 2)
            clock.now_ms += 10
            assert broker.server.memory.used_bytes <= MOST
        assert [client.receive(HEARTBEAT, 0).error_code for client in clients] == [0] * len(clients)
        assert lines(caplog) == []
        assert broker.server.memory.used_bytes == 0

    def test_one_that_is_slow_with_the_reserve_makes_way(
        self, broker: Broker, connect: Connect, clock: SetClock
    ) -> None:
        """The memory is full of requests that wait for the reserve, which belongs to one that sends no more."""
        clients = [connect() for _ in range(30)]
        frame = heartbeat(LARGEST - 1000)
        for client in clients:
            sends(client, frame[: 3 * MB], broker)
        granted = [one for one in broker.server.connections if one.reserved_bytes]
        assert granted
        assert broker.server.memory.waiting_count > 10
        pass_seconds(broker, clock, 7)
        assert all(one.is_closed for one in granted)
        # Those that have waited are read on, as long as they send.
        assert broker.server.connection_count > 10

    def test_one_that_ends_its_side_while_it_waits_is_heard(self, broker: Broker, connect: Connect) -> None:
        seen: list[str] = []

        def handle(request: Request) -> Fields:
            seen.append(request.message.group_id)
            return {"error_code": 0}

        replace_heartbeat(broker, handle)
        hostile = [connect() for _ in range(12)]
        for client in hostile:
            sends(client, half_request(LARGEST, LARGEST - 100), broker)
        waiting = connect()
        frame = heartbeat(300 << 10, "waited")
        waiting.send_bytes(frame)
        waiting.socket.shutdown(socket.SHUT_WR)
        turn(broker)
        for client in hostile:
            client.break_off()
        turn(broker, 20)
        assert seen == ["waited"]

    def test_a_request_as_large_as_the_limit(self, clock: SetClock) -> None:
        config = BrokerConfig.of({"socket.request.max.bytes": LARGEST, "queued.max.request.bytes": LARGEST})
        broker = Broker(None, config=config, timer_clock=clock).open()
        broker.dispatcher.large_requests = None
        clients = [RawClient("127.0.0.1", broker.address.port) for _ in range(2)]
        try:
            turn(broker)
            replace_heartbeat(broker, lambda _: {"error_code": 0})
            frame = heartbeat(LARGEST - 1000)
            for client in clients:
                assert sends(client, frame, broker) == len(frame)
                assert client.receive(HEARTBEAT, 0).error_code == 0
        finally:
            for client in clients:
                client.close()
            broker.close()

    def test_nothing_is_left_when_clients_go(self, broker: Broker, connect: Connect) -> None:
        clients = [connect() for _ in range(12)]
        for client in clients:
            sends(client, half_request(LARGEST, LARGEST - 100), broker)
        for client in clients:
            client.break_off()
        turn(broker, 10)
        assert broker.server.connection_count == 0
        assert broker.server.memory.used_bytes == 0


class TestRequestsUnderWay:
    def test_a_request_that_waits_is_counted_until_its_answer(self, broker: Broker, connect: Connect) -> None:
        later = DelayedAnswer()
        replace_heartbeat(broker, lambda _: later)
        client = connect()
        sends(client, heartbeat(2 * MB), broker)
        assert 2 * MB <= broker.server.memory.used_bytes < 3 * MB
        later.answer({"error_code": 0})
        turn(broker)
        assert client.receive(HEARTBEAT, 0).error_code == 0
        assert broker.server.memory.used_bytes == 0

    def test_a_batch_on_a_worker_thread_is_counted_though_its_client_has_gone(
        self, broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker.store.create_topic("orders", 1, {"max.message.bytes": str(LARGEST)})
        log = broker.store.partition("orders", 0)
        may_go_on = threading.Event()
        append = log.append_batches

        def append_when_told(*arguments: object, **options: object) -> object:
            assert may_go_on.wait(60)
            return append(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(log, "append_batches", append_when_told)
        batch = record_batch.encode([Record(value=os.urandom(2 * MB))], codec=Codec.GZIP)
        topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
        client = connect()
        body = messages.encode_request(PRODUCE, 8, {"acks": 1, "timeout": 1000, "topic_data": topics})
        sends(client, request_frame(PRODUCE, 8, 1, body), broker)
        assert len(batch) <= broker.server.memory.used_bytes < 1.5 * len(batch)
        client.break_off()
        turn(broker)
        assert broker.server.memory.used_bytes == len(batch)
        may_go_on.set()
        while broker.server.background_requests:
            broker.loop.run_turn(0.01)
        assert broker.server.memory.used_bytes == 0


class TestUnreadAnswers:
    ANSWER = 3 * MB

    def ask_and_do_not_read(self, broker: Broker, connect: Connect, count: int) -> list[RawClient]:
        answer = bytes(self.ANSWER)
        replace_heartbeat(broker, lambda _: RawAnswer([b"\0\0", bytes(answer)]))
        clients = []
        for _ in range(count):
            client = connect()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients.append(client)
            for _ in range(5):
                client.send_bytes(heartbeat(0))
            turn(broker, 3)
        return clients

    def test_they_count_towards_the_limit_and_stop_the_reading(self, broker: Broker, connect: Connect) -> None:
        self.ask_and_do_not_read(broker, connect, 30)
        memory = broker.server.memory
        assert LIMIT - self.ANSWER < memory.used_bytes <= MOST + self.ANSWER
        # One connection holds one answer, however much it has asked for.
        assert max(one.memory_bytes for one in broker.server.connections) <= self.ANSWER + 1000

    def test_those_that_do_not_read_are_closed_when_memory_is_short(
        self, broker: Broker, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.ask_and_do_not_read(broker, connect, 30)
        honest = connect()
        honest.send(API_VERSIONS, 0)
        turn(broker)
        pass_seconds(broker, clock, 40)
        assert honest.receive(API_VERSIONS, 0).error_code == 0
        assert broker.server.closed["slow"] > 0
        assert "it has not read" in lines(caplog)[0]

    def test_files_do_not_count(self, broker: Broker, connect: Connect, tmp_path: Path) -> None:
        size = 64 * MB
        with (tmp_path / "large").open("w+b") as file:
            os.ftruncate(file.fileno(), size)
            replace_heartbeat(broker, lambda _: RawAnswer([b"\0\0", FileSlice(file, 0, size), b"end"]))
            connect().send_bytes(heartbeat(0))
            turn(broker, 50)
            (connection,) = broker.server.connections
            assert connection.is_owed
            assert broker.server.memory.used_bytes < 1000

    def test_a_client_that_never_reads_is_closed_in_the_end_and_counted(
        self, broker: Broker, connect: Connect, clock: SetClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.ask_and_do_not_read(broker, connect, 1)
        clock.now_ms += 10 * 60_000 + 1
        turn(broker)
        clock.now_ms += 10 * 60_000
        turn(broker)
        assert broker.server.connection_count == 0
        assert broker.server.closed == {"unread answer": 1}
        assert broker.server.memory.used_bytes == 0
        (line,) = lines(caplog)
        assert line.endswith("it has read nothing for 600000 ms")


class TestLimit:
    def test_less_than_one_request_is_refused_as_in_kafka(self) -> None:
        with pytest.raises(InvalidConfig, match=r"queued\.max\.request\.bytes \(1000\) .* socket\.request\.max\.bytes"):
            BrokerConfig.of({"queued.max.request.bytes": 1000})
        BrokerConfig.of({"queued.max.request.bytes": 1000, "socket.request.max.bytes": 1000})

    @pytest.mark.parametrize("value", [-1, 0])
    def test_without_a_value_it_is_a_share_of_the_memory(self, value: int) -> None:
        config = BrokerConfig.of({"queued.max.request.bytes": value})
        broker = Broker(None, config=config).open()
        try:
            limit = broker.server.memory.limit_bytes
            assert limit == max(machine_memory_bytes() // 8, config.socket_request_max_bytes)
        finally:
            broker.close()

    def test_it_is_at_least_one_request(self) -> None:
        assert default_limit_bytes(100 * MB, memory_bytes=256 * MB) == 100 * MB
        assert default_limit_bytes(100 * MB, memory_bytes=16 << 30) == 2 << 30

    def test_the_limit_of_a_container_counts(self, tmp_path: Path) -> None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/system.slice/a").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/a\n")
        (tmp_path / "sys/fs/cgroup/system.slice/a/memory.max").write_text("max\n")
        (tmp_path / "sys/fs/cgroup/system.slice/memory.max").write_text(f"{512 * MB}\n")
        assert machine_memory_bytes(str(tmp_path)) == 512 * MB
        (tmp_path / "proc/self/cgroup").write_text("4:memory,cpu:/b\n")
        (tmp_path / "sys/fs/cgroup/memory").mkdir()
        (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text(f"{256 * MB}\n")
        assert machine_memory_bytes(str(tmp_path)) == 256 * MB
        (tmp_path / "proc/self/cgroup").unlink()
        assert machine_memory_bytes(str(tmp_path)) == machine_memory_bytes("/nowhere")
