"""Connections as clients use and misuse them: order, pipelining, hostile bytes, without effect on others."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net import connection
from duralog.broker.net.event_loop import READABLE
from duralog.broker.net.listening import Address, Listener, Listening
from duralog.broker.runtime import Runtime
from duralog.broker.wire import messages
from duralog.broker.wire.messages import InvalidMessage
from duralog.broker.wire.request import (
    CLOSE,
    NO_ANSWER,
    Answer,
    Api,
    DelayedAnswer,
    Fields,
    FileSlice,
    RawAnswer,
    Request,
)
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.waiting import wait_until

Connect = Callable[[], RawClient]
API_VERSIONS, METADATA, HEARTBEAT, LIST_GROUPS, FIND_COORDINATOR, DESCRIBE_CLUSTER = 18, 3, 12, 16, 10, 60
SASL_HANDSHAKE = 17
ILLEGAL_SASL_STATE = 34
SECONDS = 60.0


class Behaviour:
    """What the API that these tests replace does next. Requests are Heartbeats, whose group id says which."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.later: dict[str, DelayedAnswer] = {}
        self.left: list[str] = []
        self.is_waiting = threading.Event()
        self.has_left = threading.Event()
        self.file: BinaryIO | None = None
        self.work: Callable[[], int] = lambda: 5

    def send_from(self, path: Path, data: bytes) -> None:
        """Let requests be answered with this file."""
        path.write_bytes(data)
        self.file = path.open("rb")

    def handle(self, runtime: Runtime, request: Request) -> Answer:
        name = request.message.group_id
        self.seen.append(name)
        kind = name.split("-")[0]
        if kind == "later":
            later = self.later[name] = DelayedAnswer(lambda: self._leave(name))
            self.is_waiting.set()
            return later
        if kind == "at once":
            later = DelayedAnswer()
            later.answer({"error_code": 7})
            return later
        if kind == "background":
            later = DelayedAnswer()
            runtime.background.run(self.work, lambda result, _: later.answer({"error_code": result}), later)
            return later
        if kind == "background fails":
            later = DelayedAnswer()
            runtime.background.run(lambda: 1, lambda result, _: [][result], later)
            return later
        if kind == "silent":
            return NO_ANSWER
        if kind == "close":
            return CLOSE
        if kind == "malformed":
            raise InvalidMessage("the handler says so")
        if kind == "broken":
            raise ZeroDivisionError("a bug")
        if kind == "unencodable":
            return {"error_code": "text"}
        if kind == "file":
            assert self.file is not None
            return RawAnswer([b"\0\0", FileSlice(self.file, 0, int(name.split("-")[1])), b"end"])
        return {"error_code": 1}

    def _leave(self, name: str) -> None:
        self.left.append(name)
        self.has_left.set()


@pytest.fixture
def behaviour(broker: Broker) -> Iterator[Behaviour]:
    behaviour = Behaviour()
    apis = dict(broker.apis)
    apis[HEARTBEAT] = Api(HEARTBEAT, "Heartbeat", 0, 4, behaviour.handle, refuse)
    on_loop(broker, lambda: broker.dispatcher.serve(apis, broker))
    yield behaviour
    if behaviour.file is not None:
        behaviour.file.close()


def refuse(_: Request, error_code: int, __: str | None) -> Fields:
    return {"error_code": error_code}


def on_loop(broker: Broker, work: Callable[[], object]) -> object:
    """Run something on the loop's thread, and wait for what it returns."""
    found: list[object] = []
    done = threading.Event()

    def run() -> None:
        found.append(work())
        done.set()

    broker.loop.call_soon(run)
    assert done.wait(SECONDS)
    return found[0]


def hold(broker: Broker) -> threading.Event:
    """Stop the loop, so that what is sent is received together when the event is set."""
    has_stopped, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        has_stopped.set()
        may_go_on.wait(SECONDS)

    broker.loop.call_soon(wait)
    assert has_stopped.wait(SECONDS)
    return may_go_on


def heartbeat(name: str, correlation_id: int = 0) -> bytes:
    return request_frame(HEARTBEAT, 0, correlation_id, messages.encode_request(HEARTBEAT, 0, {"group_id": name}))


def error_code(client: RawClient) -> int:
    code: int = client.receive(HEARTBEAT, 0).error_code
    return code


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


class TestOrder:
    def test_many_requests_in_one_piece_are_answered_in_order(self, behaviour: Behaviour, client: RawClient) -> None:
        client.send_bytes(b"".join(heartbeat(f"n{number}", number) for number in range(2000)))
        for number in range(2000):
            frame = client.receive_frame()
            assert frame == struct.pack(">ih", number, 1)
        assert behaviour.seen == [f"n{number}" for number in range(2000)]

    @pytest.mark.usefixtures("behaviour")
    def test_byte_by_byte(self, client: RawClient) -> None:
        for byte in heartbeat("slow", 5) + heartbeat("slower", 6):
            client.send_bytes(bytes([byte]))
        assert [client.receive_frame()[:4] for _ in range(2)] == [struct.pack(">i", 5), struct.pack(">i", 6)]

    def test_a_request_waits_for_the_one_before_it(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        client.send_bytes(heartbeat("later-1", 1) + heartbeat("next", 2) + heartbeat("later-2", 3))
        assert behaviour.is_waiting.wait(SECONDS)
        client.send_bytes(heartbeat("last", 4))
        on_loop(broker, lambda: None)
        assert behaviour.seen == ["later-1"]
        on_loop(broker, lambda: behaviour.later["later-1"].answer({"error_code": 11}))
        assert client.receive_frame() == struct.pack(">ih", 1, 11)
        assert client.receive_frame() == struct.pack(">ih", 2, 1)
        wait_until(lambda: "later-2" in behaviour.later)
        on_loop(broker, lambda: behaviour.later["later-2"].answer({"error_code": 12}))
        assert client.receive_frame() == struct.pack(">ih", 3, 12)
        assert client.receive_frame() == struct.pack(">ih", 4, 1)

    @pytest.mark.usefixtures("behaviour")
    def test_an_answer_that_is_there_before_the_handler_returns(self, client: RawClient) -> None:
        client.send_bytes(heartbeat("at once") + heartbeat("next"))
        assert (error_code(client), error_code(client)) == (7, 1)

    @pytest.mark.usefixtures("behaviour")
    def test_work_in_the_background(self, client: RawClient) -> None:
        client.send_bytes(heartbeat("background") + heartbeat("next"))
        assert (error_code(client), error_code(client)) == (5, 1)

    @pytest.mark.usefixtures("behaviour")
    def test_no_answer_where_none_is_wanted(self, client: RawClient) -> None:
        client.send_bytes(heartbeat("silent", 1) + heartbeat("next", 2))
        assert client.receive_frame() == struct.pack(">ih", 2, 1)


class TestFiles:
    def test_a_file_goes_out_between_bytes(self, behaviour: Behaviour, client: RawClient, tmp_path: Path) -> None:
        data = os.urandom(3_000_000)
        behaviour.send_from(tmp_path / "file", data)
        client.send_bytes(heartbeat(f"file-{len(data)}", 1) + heartbeat("next", 2))
        frame = client.receive_frame()
        assert frame[:6] == struct.pack(">ih", 1, 0)
        assert frame[6:-3] == data
        assert frame[-3:] == b"end"
        assert client.receive_frame() == struct.pack(">ih", 2, 1)

    def test_a_file_that_became_shorter_ends_the_connection(
        self, behaviour: Behaviour, client: RawClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        behaviour.send_from(tmp_path / "file", b"x" * 100)
        client.send_bytes(heartbeat("file-1000"))
        with pytest.raises(ConnectionError):
            client.receive_frame()
        assert [line for line in lines(caplog) if "ends before position 100, 900 bytes were to be sent" in line]

    def test_a_half_closed_client_gets_all_of_it(self, behaviour: Behaviour, client: RawClient, tmp_path: Path) -> None:
        size = 16 << 20
        behaviour.send_from(tmp_path / "file", bytes(size))
        client.send_bytes(heartbeat(f"file-{size}"))
        client.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: bool(behaviour.seen))
        assert len(client.receive_frame()) == 4 + 2 + size + 3
        assert client.is_closed_by_peer()

    def test_a_client_that_does_not_read_is_not_read_from(
        self, behaviour: Behaviour, client: RawClient, connect: Connect, tmp_path: Path
    ) -> None:
        size = 8 << 20
        behaviour.send_from(tmp_path / "file", bytes(size))
        for _ in range(20):
            client.send_bytes(heartbeat(f"file-{size}"))
        other = connect()
        for _ in range(50):
            assert other.ask(API_VERSIONS, 0).error_code == 0
        seen = behaviour.seen.count(f"file-{size}")
        assert seen < 5
        for _ in range(20):
            assert len(client.receive_frame()) == 4 + 2 + size + 3
        assert len(behaviour.seen) == 20


class TestFailures:
    @pytest.mark.usefixtures("behaviour")
    @pytest.mark.parametrize("name", ["broken", "unencodable", "background fails"])
    def test_an_exception_becomes_an_error_answer(
        self, client: RawClient, caplog: pytest.LogCaptureFixture, name: str
    ) -> None:
        client.send_bytes(heartbeat(name) + heartbeat("next"))
        assert (error_code(client), error_code(client)) == (-1, 1)
        assert len(lines(caplog)) == 1

    @pytest.mark.usefixtures("behaviour")
    def test_the_line_says_what_and_where(self, client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
        client.send_bytes(heartbeat("broken"))
        error_code(client)
        (line,) = lines(caplog)
        assert "Heartbeat v0 of client 'test' at 127.0.0.1 failed: ZeroDivisionError: a bug at" in line

    @pytest.mark.parametrize("name", ["close", "malformed"])
    def test_the_handler_ends_the_connection_and_what_came_before_is_answered(
        self, behaviour: Behaviour, client: RawClient, name: str
    ) -> None:
        client.send_bytes(heartbeat("before") + heartbeat(name) + heartbeat("after"))
        assert error_code(client) == 1
        assert client.is_closed_by_peer()
        assert "after" not in behaviour.seen

    @pytest.mark.usefixtures("behaviour")
    def test_a_refusal_that_fails_too_ends_the_connection(self, broker: Broker, client: RawClient) -> None:
        def refuse_wrongly(*_: object) -> Fields:
            raise ValueError("no answer either")

        def replace_refusal() -> None:
            apis = broker.dispatcher._apis
            wrong = {**apis, HEARTBEAT: replace(apis[HEARTBEAT], refuse=refuse_wrongly)}
            broker.dispatcher.serve(wrong, broker)

        on_loop(broker, replace_refusal)
        client.send_bytes(heartbeat("broken"))
        assert client.is_closed_by_peer()

    def test_a_disconnect_while_waiting_is_reported_to_the_handler(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        client.send_bytes(heartbeat("later-gone"))
        assert behaviour.is_waiting.wait(SECONDS)
        client.break_off()
        assert behaviour.has_left.wait(SECONDS)
        assert behaviour.left == ["later-gone"]
        later = behaviour.later["later-gone"]
        assert later.is_gone
        on_loop(broker, lambda: later.answer({"error_code": 0}))
        assert broker.server.connection_count == 0

    def test_a_second_answer_is_a_mistake(self) -> None:
        later = DelayedAnswer()
        later.answer({})
        with pytest.raises(RuntimeError, match="has its answer already"):
            later.answer({})


HOSTILE = {
    "a negative size": struct.pack(">i", -1),
    "the most negative size": struct.pack(">i", -(2**31)),
    "a size above the limit": struct.pack(">i", (100 << 20) + 1),
    "no header": struct.pack(">i", 0),
    "half a header": struct.pack(">ihh", 4, API_VERSIONS, 0),
    "a client id that is not there": struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, 50),
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a negative API": struct.pack(">ihhih", 10, -1, 0, 1, -1),
    "a version that is too new": struct.pack(">ihhih", 10, METADATA, 99, 1, -1),
    "a version that is too old": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "a negative version": struct.pack(">ihhih", 10, METADATA, -1, 1, -1),
    "header tags without an end": struct.pack(">ihhih", 11, METADATA, 9, 1, -1) + b"\x05",
    "a body that is cut": struct.pack(">ihhih", 12, METADATA, 1, 1, -1) + b"\0\0",
    "an array without elements": struct.pack(">ihhih", 14, METADATA, 1, 1, -1) + b"\x7f\xff\xff\xff",
    "an array of more than there is memory": struct.pack(">ihhih", 16, METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\x07",
    "a null that must not be": struct.pack(">ihhih", 18, HEARTBEAT, 0, 1, -1) + b"\xff\xff\0\0\0\0\0\0",
    "TLS": bytes.fromhex("16030100c8010000c40303"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
class TestHostileBytes:
    def test_the_connection_is_closed_with_one_line_and_others_do_not_notice(
        self, broker: Broker, connect: Connect, caplog: pytest.LogCaptureFixture, data: bytes
    ) -> None:
        other, client = connect(), connect()
        assert other.ask(API_VERSIONS, 0).error_code == 0
        client.send_bytes(data)
        assert client.is_closed_by_peer()
        assert other.ask(API_VERSIONS, 0).error_code == 0
        (line,) = lines(caplog)
        assert line.startswith("the connection from 127.0.0.1 is closed: ")
        assert "\n" not in line
        wait_until(lambda: broker.server.connection_count == 1)

    def test_requests_before_it_are_answered(self, connect: Connect, data: bytes) -> None:
        client = connect()
        client.send_bytes(request_frame(API_VERSIONS, 0, 1, b"") + data)
        assert client.receive(API_VERSIONS, 0).error_code == 0
        assert client.is_closed_by_peer()


class TestMisuse:
    def test_a_client_that_wants_to_log_in_is_refused_where_there_is_no_log_in(self, client: RawClient) -> None:
        answer = client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert (answer.error_code, answer.mechanisms) == (ILLEGAL_SASL_STATE, ())

    def test_lines_do_not_grow_with_clients(
        self, connect: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duralog.broker.net.log_lines._INTERVAL_MS", math.inf)
        for _ in range(30):
            client = connect()
            client.send_bytes(struct.pack(">i", -1))
            assert client.is_closed_by_peer()
        assert len(lines(caplog)) == 1

    @pytest.mark.usefixtures("behaviour")
    def test_what_a_client_sends_cannot_forge_lines(self, client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
        body = messages.encode_request(HEARTBEAT, 0, {"group_id": "broken"})
        client.send_bytes(request_frame(HEARTBEAT, 0, 1, body, client_id="x\n2026 ERROR all is lost\x1b[2J"))
        assert error_code(client) == -1
        (line,) = lines(caplog)
        assert line.isprintable()

    def test_tagged_fields_in_the_header_are_skipped(self, client: RawClient) -> None:
        body = messages.encode_request(METADATA, 9, {"topics": []})
        client.send_bytes(request_frame(METADATA, 9, 1, body, tags=b"\x01\x09\x02xy"))
        assert client.receive(METADATA, 9).topics == ()

    def test_a_null_client_id(self, client: RawClient) -> None:
        assert client.ask(METADATA, 9, {"topics": []}, client_id=None).topics == ()

    def test_half_closed_clients_get_their_answers(self, client: RawClient) -> None:
        client.send(API_VERSIONS, 0)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.receive(API_VERSIONS, 0).error_code == 0
        assert client.is_closed_by_peer()

    def test_half_closed_clients_get_what_they_wait_for(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        may_end = threading.Event()
        behaviour.work = lambda: 7 if may_end.wait(SECONDS) else 8
        client.send_bytes(heartbeat("background") * 2)
        client.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: any(each.has_ended for each in broker.server.connections))
        may_end.set()
        for _ in range(2):
            assert error_code(client) == 7
        assert client.is_closed_by_peer()
        wait_until(lambda: broker.server.connection_count == 0)

    def test_half_closed_clients_get_what_is_long_in_coming(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        client.send_bytes(heartbeat("later-long"))
        client.socket.shutdown(socket.SHUT_WR)
        wait_until(lambda: any(each.has_ended for each in broker.server.connections))
        on_loop(broker, lambda: behaviour.later["later-long"].answer({"error_code": 3}))
        assert error_code(client) == 3
        assert behaviour.left == []

    def test_clients_that_left_are_let_go_when_they_are_sent_something(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        client.send_bytes(heartbeat("later-left"))
        client.close()
        wait_until(lambda: any(each.has_ended for each in broker.server.connections))
        on_loop(broker, lambda: behaviour.later["later-left"].answer({"error_code": 3}))
        wait_until(lambda: broker.server.connection_count == 0)

    def test_what_was_received_is_handled_before_more_is_read_when_a_wait_ends_without_answer(
        self, broker: Broker, behaviour: Behaviour, client: RawClient
    ) -> None:
        """As for acks=0 with work on a worker thread: the end of the wait and new bytes may come in one turn."""
        name = messages.encode_request(HEARTBEAT, 0, {"group_id": "background"})
        large = request_frame(HEARTBEAT, 0, 0, name + bytes(66_000))
        client.send_bytes(large[:10])
        wait_until(lambda: any(each.held_bytes for each in broker.server.connections))
        client.send_bytes(large[10:])
        assert error_code(client) == 5
        may_go_on = hold(broker)
        client.send_bytes(heartbeat("later-silent") + heartbeat("silent") * 5000)
        may_go_on.set()
        assert behaviour.is_waiting.wait(SECONDS)
        (connected,) = broker.server.connections
        assert connected.held_bytes > len(large)

        def end_the_wait() -> None:
            behaviour.later["later-silent"].answer(NO_ANSWER)
            connected._on_event(READABLE)

        on_loop(broker, end_the_wait)
        client.send_bytes(heartbeat("last"))
        assert error_code(client) == 1
        assert len(behaviour.seen) == 5003

    def test_clients_that_leave_in_the_middle(self, broker: Broker, connect: Connect) -> None:
        frame = request_frame(METADATA, 9, 1, messages.encode_request(METADATA, 9, {"topics": None}))
        for size in range(len(frame)):
            client = connect()
            client.send_bytes(frame[:size])
            if size % 2:
                client.break_off()
            else:
                client.close()
        wait_until(lambda: broker.server.connection_count == 0)
        assert connect().ask(API_VERSIONS, 0).error_code == 0

    def test_a_client_that_sends_without_end_starves_no_other(
        self, broker: Broker, behaviour: Behaviour, connect: Connect
    ) -> None:
        greedy, modest = connect(), connect()
        greedy.socket.settimeout(None)
        is_over = threading.Event()
        block = heartbeat("silent") * 20_000

        def send() -> None:
            try:
                while not is_over.is_set():
                    greedy.socket.send(block)
            except OSError:
                pass

        thread = threading.Thread(target=send)
        thread.start()
        try:
            wait_until(lambda: len(behaviour.seen) > 1000)
            for number in range(20):
                may_go_on = hold(broker)
                modest.send_bytes(heartbeat(f"modest-{number}"))
                before = len(behaviour.seen)
                may_go_on.set()
                assert error_code(modest) == 1
                # Two buffers full may come between: one that was being handled, and one more turn.
                between = behaviour.seen.index(f"modest-{number}", before) - before
                assert between < 3 * (512 << 10) // len(heartbeat("silent")) + 1
        finally:
            is_over.set()
            greedy.socket.shutdown(socket.SHUT_RDWR)
            thread.join()

    def test_others_have_their_turn_among_requests_that_came_together(
        self, broker: Broker, behaviour: Behaviour, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "_TURN_SECONDS", 0)
        greedy, modest = connect(), connect()
        for client in (greedy, modest):
            client.ask(API_VERSIONS, 0)
        may_go_on = hold(broker)
        greedy.send_bytes(heartbeat("greedy") * 500)
        modest.send_bytes(heartbeat("modest"))
        may_go_on.set()
        assert error_code(modest) == 1
        assert behaviour.seen.index("modest") < 5
        assert [error_code(greedy) for _ in range(500)] == [1] * 500

    def test_requests_without_answers_are_handled_though_the_client_has_left(
        self, behaviour: Behaviour, client: RawClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "_TURN_SECONDS", 0)
        client.send_bytes(heartbeat("silent") * 500)
        client.close()
        wait_until(lambda: len(behaviour.seen) == 500)


class TestListeners:
    def test_each_client_gets_the_address_of_its_listener(self) -> None:
        inside, outside = Address("127.0.0.1", 0), Address("::1", 0)
        listening = Listening(
            (Listener("INSIDE", inside, Address("broker", 29092)), Listener("OUTSIDE", outside, outside))
        )
        with Broker(None, listening=listening) as broker:
            broker.start()
            told = []
            for address in broker.addresses.values():
                with RawClient(address.host, address.port) as client:
                    (node,) = client.ask(METADATA, 9, {"topics": []}).brokers
                    (described,) = client.ask(DESCRIBE_CLUSTER, 0).brokers
                    assert (described.host, described.port) == (node.host, node.port)
                    client.send(FIND_COORDINATOR, 4, {"coordinator_keys": ["group"]})
                    (coordinator,) = client.receive(FIND_COORDINATOR, 4).coordinators
                    assert (coordinator.host, coordinator.port) == (node.host, node.port)
                    told.append((node.host, node.port))
            assert told == [("broker", 29092), ("::1", broker.addresses["OUTSIDE"].port)]
            assert broker.node.host == "broker"

    def test_another_process_that_listens_first(self) -> None:
        """Two may be bound to one address as long as none listens there."""
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]

            class Late(Broker):
                def _serve_metrics(self, opened: ExitStack) -> None:
                    super()._serve_metrics(opened)
                    other.listen()

            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}"):
                Late(None, listening=Listening.at(Address("127.0.0.1", port))).open()


class TestStopping:
    def test_what_is_being_worked_on_is_answered_and_nothing_new_begins(
        self, broker: Broker, behaviour: Behaviour, connect: Connect
    ) -> None:
        working, waiting, idle = connect(), connect(), connect()
        go_on = threading.Event()
        has_begun = threading.Event()

        def work() -> int:
            has_begun.set()
            assert go_on.wait(SECONDS)
            return 3

        behaviour.work = work
        waiting.send_bytes(heartbeat("later-forever"))
        wait_until(lambda: "later-forever" in behaviour.later)
        working.send_bytes(heartbeat("background") + heartbeat("never"))
        assert has_begun.wait(SECONDS)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        wait_until(lambda: broker.is_stopping)
        idle.send_bytes(heartbeat("never"))
        go_on.set()
        assert error_code(working) == 3
        for client in (working, waiting, idle):
            assert client.is_closed_by_peer()
        stopping.join(SECONDS)
        assert not stopping.is_alive()
        assert "never" not in behaviour.seen
        assert behaviour.left == ["later-forever"]

    def test_no_client_can_connect_any_more(self, broker: Broker) -> None:
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.address.port))
        broker.stop()

    def test_a_start_that_fails_leaves_nothing_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError

        before = set(os.listdir("/proc/self/fd"))
        monkeypatch.setattr("duralog.broker.groups.coordinator.GroupCoordinator.load", fail)
        with pytest.raises(ZeroDivisionError):
            Broker(str(tmp_path)).open()
        assert set(os.listdir("/proc/self/fd")) <= before
        monkeypatch.undo()
        with Broker(str(tmp_path)) as broker:
            assert broker.store.topics() == []
