"""Large requests are decoded and answered by worker threads, one at a time: other clients do not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.topics import metadata
from duralog.broker.net.dispatch import LARGE_BYTES
from duralog.broker.wire import messages
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.waiting import wait_until

METADATA, FIND_COORDINATOR, API_VERSIONS, CREATE_TOPICS = 3, 10, 18, 19
NAMES = [f"topic-{number}" for number in range(5000)]
LARGE = {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False}
REQUESTS = [
    (METADATA, 9, LARGE),
    (FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}),
    (
        CREATE_TOPICS,
        7,
        {
            "topics": [{"name": name, "num_partitions": 0, "replication_factor": 1} for name in NAMES],
            "timeout": 9000,
            "validate_only": True,
        },
    ),
]


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(None) as broker:
        yield broker.start()


@pytest.fixture
def connect(served: Broker) -> Iterator[Callable[[], RawClient]]:
    clients: list[RawClient] = []

    def connect() -> RawClient:
        clients.append(RawClient("127.0.0.1", served.address.port))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
    # The server sees it later: the next test counts connections.
    wait_until(lambda: served.server.connection_count == 0)


class Held:
    """Holds large requests where they are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.threads: list[str] = []
        """Those that have begun to decode one."""
        decode = messages.decode_request

        def held(api_key: int, version: int, body: Any) -> Any:
            if len(body) >= LARGE_BYTES:
                self.threads.append(threading.current_thread().name)
                self.begun.set()
                assert self.may_end.wait(60)
            return decode(api_key, version, body)

        monkeypatch.setattr(messages, "decode_request", held)


@pytest.mark.parametrize(("api", "version", "fields"), REQUESTS, ids=["metadata", "coordinators", "creations"])
def test_they_are_answered_as_small_ones_are(
    served: Broker, connect: Callable[[], RawClient], api: int, version: int, fields: dict[str, Any]
) -> None:
    frame = request_frame(api, version, 7, messages.encode_request(api, version, fields))
    assert len(frame) > LARGE_BYTES
    client = connect()

    def answered() -> bytes:
        client.send_bytes(frame)
        return client.receive_frame()

    by_worker = answered()
    large_requests, served.dispatcher.large_requests = served.dispatcher.large_requests, None
    try:
        assert answered() == by_worker
    finally:
        served.dispatcher.large_requests = large_requests


def test_others_are_served_meanwhile(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    large, other = connect(), connect()
    large.send(METADATA, 9, LARGE)
    large.send(API_VERSIONS, 0)
    assert held.begun.wait(60)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert served.server.memory.used_bytes >= LARGE_BYTES, "its memory is counted"
    (waiting,) = [each for each in served.server.connections if each.is_waiting]
    assert waiting.is_held_up, "and its client is not to blame"
    held.may_end.set()
    assert len(large.receive(METADATA, 9).topics) == len(NAMES)
    assert large.receive(API_VERSIONS, 0).error_code == 0, "the answers have the order of the requests"


def test_a_client_that_leaves_meanwhile(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    client = connect()
    client.send(METADATA, 9, LARGE)
    assert held.begun.wait(60)
    client.break_off()
    wait_until(lambda: served.server.connection_count == 0)
    held.may_end.set()
    wait_until(lambda: served.server.background_requests == 0)
    assert served.server.memory.used_bytes == 0


def test_one_at_a_time_so_that_workers_are_left_for_others(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    clients = [connect() for _ in range(6)]
    for client in clients:
        client.send(METADATA, 9, LARGE)
    wait_until(lambda: sum(each.is_waiting for each in served.server.connections) == len(clients))
    assert served.server.background_requests == len(held.threads) == 1
    done = threading.Event()
    served.loop.call_soon(lambda: served.runtime.background.run(done.set, lambda *_: None))
    assert done.wait(60), "appends and changes of topics are done meanwhile"
    held.may_end.set()
    for client in clients:
        assert len(client.receive(METADATA, 9).topics) == len(NAMES)


def test_an_answer_is_encoded_before_the_next_request_is_decoded(
    connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    steps: list[str] = []
    decode, encode = messages.decode_request, messages.encode_response

    def noted_decode(*given: Any) -> Any:
        steps.append("decode")
        return decode(*given)

    def noted_encode(*given: Any) -> Any:
        steps.append("encode")
        return encode(*given)

    monkeypatch.setattr(messages, "decode_request", noted_decode)
    monkeypatch.setattr(messages, "encode_response", noted_encode)
    clients = [connect() for _ in range(3)]
    for client in clients:
        client.send(METADATA, 9, LARGE)
    held.may_end.set()
    for client in clients:
        client.receive(METADATA, 9)
    assert steps == ["decode", "encode"] * len(clients)


def test_one_that_waits_is_dropped_with_its_client(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    connect().send(METADATA, 9, LARGE)
    wait_until(lambda: bool(held.threads))
    client = connect()
    client.send(METADATA, 9, LARGE)
    queue = served.dispatcher.large_requests
    assert queue is not None
    wait_until(lambda: bool(queue._requests))
    waiting = queue._requests[0][0].__self__  # type: ignore[attr-defined]
    client.break_off()
    wait_until(lambda: served.server.connection_count == 1)
    assert waiting._body == b"", "the queue keeps nothing that is not counted"
    held.may_end.set()
    wait_until(lambda: served.server.background_requests == 0 and not queue._requests)
    assert len(held.threads) == 1, "nothing is decoded for a client that is gone"
    assert served.server.memory.used_bytes == 0


def test_a_stop_waits_for_those_that_have_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with Broker(None) as broker:
        broker.start()
        clients = [RawClient("127.0.0.1", broker.address.port) for _ in range(3)]
        for client in clients:
            client.send(METADATA, 9, LARGE)
        wait_until(lambda: len([each for each in broker.server.connections if each.is_waiting]) == len(clients))
        broker.loop.call_soon(broker._begin_shutdown)
        wait_until(lambda: broker.is_stopping)
        broker.loop.call_soon(held.may_end.set)
    answered = 0
    for client in clients:
        with client, suppress(ConnectionError):
            answered += len(client.receive(METADATA, 9).topics) == len(NAMES)
    assert (answered, len(held.threads)) == (1, 1)


def test_one_that_is_malformed_ends_the_connection(
    connect: Callable[[], RawClient], caplog: pytest.LogCaptureFixture
) -> None:
    client = connect()
    client.send_bytes(request_frame(METADATA, 9, 1, b"\xff" * LARGE_BYTES))
    assert client.is_closed_by_peer()
    assert "not a MetadataRequest" in caplog.text


def test_one_that_no_api_takes_is_refused_before_it_is_copied(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    held.may_end.set()
    client = connect()
    client.send_bytes(request_frame(METADATA, 9, 1, bytes(messages.LARGEST_REQUEST_BYTES + 1)))
    assert client.is_closed_by_peer()
    assert held.threads == ["duralog-broker"]


def test_a_handler_that_fails(
    served: Broker, connect: Callable[[], RawClient], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(metadata, "_by_name", fail)
    client = connect()
    answer = client.ask(METADATA, 9, LARGE)
    assert {topic.error_code for topic in answer.topics} == {-1}
    assert "a defect" in caplog.text
    assert client.ask(API_VERSIONS, 0).error_code == 0
