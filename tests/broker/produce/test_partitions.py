"""The partitions as the broker leads them: how they are found, and what is known of those that are gone or offline."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.broker.broker import Broker
from duralog.broker.topics.partition import NO_TOPIC_ID, Partition
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import CLOSE, DelayedAnswer, RawAnswer
from duralog.errors import StorageError, UnknownTopic
from duralog.format.record import Record
from duralog.format.uuids import uuid_bytes
from duralog.storage.log.partition_log import AppendResult
from tests.support.broker.record_desk import Answered, RecordDesk, batch


@pytest.fixture
def desk(idle_broker: Broker) -> RecordDesk:
    desk = RecordDesk(idle_broker)
    desk.create_topic("t", 2)
    return desk


def test_by_name_and_by_id(desk: RecordDesk) -> None:
    partitions = desk.broker.partitions
    topic_id = uuid_bytes(desk.broker.store.topic_id("t") or "")
    found = partitions.get("t", 1)
    assert found is not None
    assert (found.topic, found.number, found.topic_id) == ("t", 1, topic_id)
    assert partitions.get("t", 1) is found
    assert partitions.topic_name(topic_id) == "t"
    assert partitions.topic_name(NO_TOPIC_ID) is None
    assert [partitions.get("t", 2), partitions.get("t", -1), partitions.get("u", 0)] == [None] * 3


def test_a_topic_that_was_made_again_is_another_one(desk: RecordDesk) -> None:
    partitions = desk.broker.partitions
    old = partitions.get("t", 0)
    assert old is not None
    desk.broker.store.delete_topic("t")
    assert partitions.get("t", 0) is None
    assert old.is_gone
    assert partitions.topic_name(old.topic_id) is None
    desk.create_topic("t", 1)
    new = partitions.get("t", 0)
    assert new is not None
    assert new is not old
    assert not new.is_gone
    assert new.topic_id != old.topic_id


def test_a_topic_that_is_deleted_while_ids_are_gathered(desk: RecordDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_id = uuid_bytes(desk.broker.store.topic_id("t") or "")
    names = [*desk.broker.store.topics(), "just deleted"]
    monkeypatch.setattr(desk.broker.store, "topics", lambda: names)
    assert desk.broker.partitions.topic_name(topic_id) == "t"


def test_what_waits_in_line_has_its_turn_in_order_however_much_it_is(
    desk: RecordDesk, caplog: pytest.LogCaptureFixture
) -> None:
    partition = desk.broker.partitions.get("t", 0)
    assert partition is not None
    done: list[object] = []

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    def append(then: Callable[[AppendResult | None, Exception | None], None]) -> None:
        sent = bytearray(batch())
        log = partition.log
        partition.append_queued(
            desk.broker.runtime.background, lambda: log.append_batches(sent), then, memory_bytes=len(sent)
        )

    append(lambda _, error: done.append(error))
    partition.after_appends(fail)
    for number in range(3000):
        partition.after_appends(partial(done.append, number))
    append(lambda _, __: done.append("last"))
    assert done == []
    while not done or done[-1] != "last":
        desk.broker.run_pending()
    assert done == [*range(3000), None, "last"]
    assert not partition.append_queue
    assert desk.end_offset("t") == 2
    assert ["ZeroDivisionError: a bug" in record.getMessage() for record in caplog.records] == [True]


class _FailsToWake:
    def wake(self, partition: Partition) -> None:
        raise ZeroDivisionError(f"a bug, told of {partition.topic}")


def test_an_error_after_an_append_on_a_worker_thread_keeps_no_client_waiting(
    desk: RecordDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.broker.store.alter_topic_config("t", {"flush.messages": 1})
    waits_for_records, first = Answered(desk.produce(9, {"t": {0: batch()}})), desk.broker.partitions.get("t", 0)
    assert first is not None
    first.waiting[_FailsToWake()] = None
    _run_until(desk, lambda: waits_for_records.later.is_answered)
    assert isinstance(waits_for_records.only, RawAnswer)
    first.waiting.clear()

    def fail(*_: object) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("duralog.broker.produce.response.encode", fail)
    cannot_be_told = Answered(desk.produce(9, {"t": {0: batch(), 1: batch()}}))
    _run_until(desk, lambda: cannot_be_told.later.is_answered)
    assert cannot_be_told.only is CLOSE


def test_who_cannot_be_refused_is_closed(desk: RecordDesk) -> None:
    later = DelayedAnswer()
    answers: list[object] = []

    def fail(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    later.deliver_to(answers.append, fail)
    desk.broker.runtime.background.run(lambda: None, fail, later)
    _run_until(desk, lambda: bool(answers))
    assert answers == [CLOSE]


def _run_until(desk: RecordDesk, is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, "it has not come"
        desk.broker.loop.run_turn(0.01)


def test_other_changes_keep_what_is_known(desk: RecordDesk) -> None:
    partitions = desk.broker.partitions
    found = partitions.get("t", 0)
    desk.create_topic("u")
    desk.broker.store.add_partitions("t", 5)
    assert partitions.get("t", 0) is found
    assert partitions.get("t", 4) is not None
    desk.broker.store.alter_topic_config("t", {"retention.ms": 5})
    assert partitions.get("t", 0) is found


def test_appends_to_what_is_not_there(desk: RecordDesk) -> None:
    with pytest.raises(UnknownTopic, match="no partition 7 of t"):
        desk.broker.partitions.append_records("t", 7, [Record(value=b"v")])


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[RecordDesk]:
    """A broker one of whose partitions cannot be loaded."""
    folder = tmp_path / "data"
    with duralog.open(folder) as store:
        store.create_topic("t", 2)
    log = next((folder / "t-1").glob("*.log"))
    log.unlink()
    log.mkdir()
    (log / "in the way").touch()
    with Broker(str(folder)) as broker:
        assert list(broker.store.offline)
        yield RecordDesk(broker)
    shutil.rmtree(log)


def test_a_partition_that_is_offline(broken: RecordDesk) -> None:
    assert broken.broker.partitions.is_offline("t", 1)
    assert not broken.broker.partitions.is_offline("t", 0)
    for version in (9, 13):
        assert broken.produce_one(version, "t", batch(), partition=1).error_code == codes.KAFKA_STORAGE_ERROR
        assert broken.produce_one(version, "t", batch(), partition=0).error_code == 0
        assert broken.fetch_one(13, "t", 0, partition=1).error_code == codes.KAFKA_STORAGE_ERROR
    assert broken.fetch_one(5, "t", 0, partition=1).error_code == codes.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(StorageError, match="offline"):
        broken.broker.partitions.append_records("t", 1, [Record(value=b"v")])
    # It is told at once, whatever else the client would wait for.
    asked = [{"partition": 1, "fetch_offset": 0}, {"partition": 0, "fetch_offset": 2}]
    assert isinstance(broken.fetch(13, {"t": asked}, max_wait=1000), RawAnswer)
