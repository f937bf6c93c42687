"""Fetches that wait: who is woken, when time is up, and that nothing stays behind."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.fetch.purgatory import _WaitingFetch
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire import messages
from duralog.broker.wire.request import DelayedAnswer, RawAnswer
from duralog.config import BrokerConfig
from tests.support.broker.raw_client import RawClient
from tests.support.broker.record_desk import FETCH, PRODUCE, Answered, RecordDesk, batch, decode

Connect = Callable[[], RawClient]
CREATE_TOPICS = 19


class Time:
    """A clock for timers that stands still."""

    def __init__(self) -> None:
        self.ms = 1000.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def desk(time: Time) -> Iterator[RecordDesk]:
    with Broker(None, config=BrokerConfig.of({"offsets.topic.num.partitions": 1}), timer_clock=time) as broker:
        desk = RecordDesk(broker)
        desk.create_topic("t", 4)
        yield desk
        assert broker.fetches.waiting == 0
        assert [number for number in range(4) if _waiting(desk, number)] == []


def _waiting(desk: RecordDesk, number: int) -> int:
    partition = desk.broker.partitions.get("t", number)
    return 0 if partition is None else len(partition.waiting)


def _wait(desk: RecordDesk, offsets: dict[int, int], *, version: int = 13, **options: Any) -> Answered:
    asked = {"t": [{"partition": number, "fetch_offset": offset} for number, offset in offsets.items()]}
    return Answered(desk.fetch(version, asked, **{"max_wait": 500, **options}))


def _sizes(answer: Any, version: int = 13) -> dict[int, int]:
    read = decode(answer, FETCH, version)
    return {one.partition_index: len(one.records) for topic in read.responses for one in topic.partitions}


def test_an_append_wakes_those_of_its_partition(desk: RecordDesk) -> None:
    first, other = _wait(desk, {0: 0, 1: 0}), _wait(desk, {2: 0})
    assert desk.broker.fetches.waiting == 2
    desk.produce_one(9, "t", batch(), partition=1)
    desk.broker.run_pending()
    assert _sizes(first.only) == {0: 0, 1: len(batch())}
    assert other.answers == []
    desk.produce_one(9, "t", batch(), partition=2)
    desk.broker.run_pending()
    assert _sizes(other.only) == {2: len(batch())}


def test_one_request_wakes_once(desk: RecordDesk) -> None:
    waiting = _wait(desk, {0: 0, 1: 0, 2: 0})
    desk.produce(9, {"t": {0: batch(), 2: batch()}})
    assert waiting.answers == []
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: len(batch()), 1: 0, 2: len(batch())}


def test_time_is_up(desk: RecordDesk, time: Time) -> None:
    waiting = _wait(desk, {0: 0})
    time.ms += 499
    desk.broker.run_pending()
    assert waiting.answers == []
    time.ms += 2
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: 0}
    # What comes later wakes nobody.
    desk.produce_one(9, "t", batch())
    desk.broker.run_pending()
    assert len(waiting.answers) == 1


def test_until_there_is_enough(desk: RecordDesk) -> None:
    size = len(batch())
    waiting = _wait(desk, {0: 0, 1: 0}, min_bytes=3 * size)
    desk.produce_one(9, "t", batch(), partition=0)
    desk.broker.run_pending()
    desk.produce_one(9, "t", batch(), partition=0)
    desk.broker.run_pending()
    assert waiting.answers == []
    desk.produce_one(9, "t", batch(), partition=1)
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: 2 * size, 1: size}


def test_what_is_there_already_counts(desk: RecordDesk) -> None:
    desk.produce_one(9, "t", batch(), partition=0)
    waiting = _wait(desk, {0: 0, 1: 0}, min_bytes=2 * len(batch()))
    desk.produce_one(9, "t", batch(), partition=1)
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: len(batch()), 1: len(batch())}


def test_no_partition_counts_for_more_than_it_may_send(desk: RecordDesk, time: Time) -> None:
    asked = {"t": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10}]}
    waiting = Answered(desk.fetch(13, asked, max_wait=500, min_bytes=10 * len(batch())))
    for _ in range(20):
        desk.produce_one(9, "t", batch())
        desk.broker.run_pending()
    assert waiting.answers == []
    time.ms += 501
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: len(batch())}


@pytest.mark.parametrize(
    "asked",
    [
        {"max_wait": 0},
        {"max_wait": -5},
        {"min_bytes": 0},
        {"min_bytes": -1},
        {"max_bytes": 0},
    ],
)
def test_nothing_to_wait_for(desk: RecordDesk, asked: dict[str, int]) -> None:
    answer = desk.fetch(13, {"t": [{"partition": 0, "fetch_offset": 0}]}, **{"max_wait": 500, **asked})
    assert isinstance(answer, RawAnswer)


def test_errors_do_not_wait(desk: RecordDesk) -> None:
    asked = [{"partition": 0, "fetch_offset": 0}, {"partition": 1, "fetch_offset": 99}]
    assert isinstance(desk.fetch(13, {"t": asked}, max_wait=500), RawAnswer)
    epoch = desk.broker.store.partition("t", 0).leader_epoch
    desk.produce_one(9, "t", batch())
    diverging = {"partition": 0, "fetch_offset": 5, "last_fetched_epoch": epoch}
    assert isinstance(desk.fetch(13, {"t": [diverging]}, max_wait=500), RawAnswer)
    assert isinstance(desk.fetch(13, {"gone": [{"partition": 0, "fetch_offset": 0}]}, max_wait=500), RawAnswer)


def test_a_missing_partition_does_not_end_the_waiting(desk: RecordDesk) -> None:
    asked = {"t": [{"partition": 0, "fetch_offset": 0}], "gone": [{"partition": 0, "fetch_offset": 0}]}
    waiting = Answered(desk.fetch(13, asked, max_wait=500))
    desk.produce_one(9, "t", batch())
    desk.broker.run_pending()
    assert [one.partitions[0].error_code for one in decode(waiting.only, FETCH, 13).responses] == [
        0,
        codes.UNKNOWN_TOPIC_ID,
    ]


def test_a_client_that_leaves_leaves_nothing(desk: RecordDesk, time: Time) -> None:
    timers = len(desk.broker.loop.timers)
    waiting = _wait(desk, dict.fromkeys(range(4), 0))
    assert len(desk.broker.loop.timers) == timers + 1
    waiting.later.leave()
    assert desk.broker.fetches.waiting == 0
    assert len(desk.broker.loop.timers) == timers
    assert sum(_waiting(desk, number) for number in range(4)) == 0
    desk.produce_one(9, "t", batch())
    desk.broker.run_pending()
    assert waiting.answers == []


@pytest.mark.parametrize("how", ["answered", "time is up", "left"])
def test_nothing_waits_for_garbage_to_be_looked_for(desk: RecordDesk, time: Time, how: str) -> None:
    """A broker that serves looks for it seldom, and an answer holds files that may be deleted meanwhile."""
    gc.collect()
    gc.disable()
    try:
        before = len(_all_waiting())
        waiting = _wait(desk, {0: 0})
        if how == "answered":
            desk.produce_one(9, "t", batch())
        elif how == "time is up":
            time.ms += 500
        else:
            waiting.later.leave()
        desk.broker.run_pending()
        assert len(waiting.answers) == (how != "left")
        del waiting
        assert len(_all_waiting()) == before
    finally:
        gc.enable()


def _all_waiting() -> list[object]:
    # Not by isinstance: it asks what a weak proxy stands for, which fails if that is gone.
    return [each for each in gc.get_objects() if type(each) is _WaitingFetch]


def test_a_client_that_leaves_between_append_and_answer(desk: RecordDesk) -> None:
    waiting = _wait(desk, {0: 0})
    desk.produce_one(9, "t", batch())
    waiting.later.leave()
    desk.broker.run_pending()
    assert waiting.answers == []


def test_committed_readers_wait_for_the_marker(desk: RecordDesk) -> None:
    waiting = _wait(desk, {0: 0}, isolation_level=1)
    partition = desk.broker.partitions.get("t", 0)
    assert partition is not None
    partition.append(bytearray(batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)))
    desk.broker.run_pending()
    assert waiting.answers == []
    desk.broker.partitions.end_transaction(
        "t", 0, producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, transaction_version=0
    )
    desk.broker.run_pending()
    assert _sizes(waiting.only)[0] > len(batch())


def test_a_topic_that_is_deleted_wakes_its_readers(desk: RecordDesk) -> None:
    waiting = _wait(desk, {0: 0})
    desk.broker.store.delete_topic("t")
    desk.broker.partitions.refresh()
    desk.broker.run_pending()
    (topic,) = decode(waiting.only, FETCH, 13).responses
    assert topic.partitions[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_a_log_that_rolls_meanwhile(desk: RecordDesk) -> None:
    desk.produce_one(9, "t", batch())
    waiting = _wait(desk, {0: 1}, min_bytes=2 * len(batch()))
    desk.broker.store.partition("t", 0).roll()
    for _ in range(2):
        desk.produce_one(9, "t", batch())
    desk.broker.run_pending()
    assert _sizes(waiting.only) == {0: 2 * len(batch())}


class TestSessions:
    def test_a_session_waits_for_changes(self, desk: RecordDesk) -> None:
        opened = desk.fetched(13, {"t": [{"partition": n, "fetch_offset": 0} for n in range(3)]}, session_epoch=0)
        waiting = _wait(desk, {}, session_id=opened.session_id, session_epoch=1)
        desk.produce_one(9, "t", batch(), partition=1)
        desk.broker.run_pending()
        assert _sizes(waiting.only) == {1: len(batch())}

    def test_a_session_begins_when_its_first_fetch_is_answered(self, desk: RecordDesk) -> None:
        waiting = _wait(desk, {0: 0}, session_epoch=0)
        assert len(desk.broker.fetches.sessions) == 0
        desk.produce_one(9, "t", batch())
        desk.broker.run_pending()
        assert decode(waiting.only, FETCH, 13).session_id > 0
        assert len(desk.broker.fetches.sessions) == 1

    def test_another_request_uses_the_session_meanwhile(self, desk: RecordDesk) -> None:
        opened = desk.fetched(13, {"t": [{"partition": 0, "fetch_offset": 0}]}, session_epoch=0)
        first = _wait(desk, {}, session_id=opened.session_id, session_epoch=1)
        second = _wait(desk, {}, session_id=opened.session_id, session_epoch=2)
        desk.produce_one(9, "t", batch())
        desk.broker.run_pending()
        assert decode(first.only, FETCH, 13).error_code == codes.INVALID_FETCH_SESSION_EPOCH
        assert _sizes(second.only) == {0: len(batch())}


def test_many_waiting_clients(desk: RecordDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append looks at those of its own partition only."""
    waiting = [_wait(desk, {number % 4: 0}) for number in range(400)]
    assert [_waiting(desk, number) for number in range(4)] == [100] * 4
    looked: list[Any] = []
    with monkeypatch.context() as watched:
        watched.setattr(desk.broker.fetches, "woken", looked.append)
        desk.produce_one(9, "t", batch(), partition=3)
    assert len(looked) == 100
    for one in waiting:
        assert isinstance(one.later, DelayedAnswer)
        one.later.leave()


def test_what_goes_wrong_is_the_answer_and_others_do_not_notice(client: RawClient, connect: Connect) -> None:
    client.ask(CREATE_TOPICS, 7, {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}]})
    other = connect()
    asked = {"replica_id": -1, "max_wait": 20_000, "min_bytes": 1, "max_bytes": 1000}
    good = {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    # Read with U+FFFD for every byte, this name is too long to be written.
    bad = struct.pack(">h", 32_000) + b"\xff" * 32_000 + struct.pack(">iiqi", 1, 0, 0, 1000)
    body = bytearray(messages.encode_request(FETCH, 4, {**asked, "topics": [good]}))
    body[17:21] = struct.pack(">i", 2)
    client.send(FETCH, 4, body=bytes(body) + bad)
    other.send(FETCH, 4, {**asked, "topics": [good]})
    produced = {"name": "t", "partition_data": [{"index": 0, "records": bytes(batch())}]}
    connect().ask(PRODUCE, 8, {"acks": 1, "timeout": 1000, "topic_data": [produced]})
    (partition,) = other.receive(FETCH, 4).responses[0].partitions
    assert partition.records
    assert client.is_closed_by_peer()
