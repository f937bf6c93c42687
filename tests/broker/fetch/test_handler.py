"""Fetch: what is read and what is refused. The codes and offsets are those that Kafka 4.3.1 answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.records import fetch as handler
from duralog.broker.wire import error_codes as codes
from duralog.errors import CorruptRecord, StorageError
from duralog.format.batches import scan
from duralog.storage.segment.readable_segment import ReadableSegment
from tests.support.broker.record_desk import FETCH, RecordDesk, batch, decode

VERSIONS = range(4, 19)
UNCHANGED = (-1, -1)


@pytest.fixture
def desk(idle_broker: Broker) -> Iterator[RecordDesk]:
    desk = RecordDesk(idle_broker)
    desk.create_topic("t", 4)
    for n in range(12):
        desk.produce_one(9, "t", batch(b"%d" % n))
    for _ in range(2):
        desk.produce_one(9, "t", batch(), partition=1)
    yield desk
    assert idle_broker.fetches.waiting == 0


def _offsets(one: Any) -> tuple[int, int, int]:
    return one.high_watermark, one.last_stable_offset, one.log_start_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_as_it_is(desk: RecordDesk, version: int) -> None:
    found = desk.fetch_one(version, "t", 3)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 12, 12)
    assert found.aborted_transactions is None
    assert [one.base_offset for one in scan(found.records)] == list(range(3, 12))
    assert found.records == desk.broker.store.partition("t", 0).read_slice(3).read()


@pytest.mark.parametrize("version", [12, 13])
def test_what_does_not_exist(desk: RecordDesk, version: int) -> None:
    unknown = desk.fetch_one(version, "gone", 0)
    assert unknown.error_code == (codes.UNKNOWN_TOPIC_ID if version == 13 else codes.UNKNOWN_TOPIC_OR_PARTITION)
    beyond = desk.fetch_one(version, "t", 0, partition=99)
    assert beyond.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    for one in (unknown, beyond):
        assert _offsets(one) == (-1, -1, -1)
        assert (one.aborted_transactions, one.records) == ((), b"")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"offset": 13}, codes.OFFSET_OUT_OF_RANGE),
        ({"offset": -1}, codes.OFFSET_OUT_OF_RANGE),
        ({"offset": 0, "current_leader_epoch": 5}, codes.UNKNOWN_LEADER_EPOCH),
        ({"offset": 0, "last_fetched_epoch": 5}, codes.OFFSET_OUT_OF_RANGE),
        ({"offset": 0, "max_bytes": -1}, codes.UNKNOWN_SERVER_ERROR),
        ({"offset": 0, "partition_max_bytes": -1}, codes.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusals(desk: RecordDesk, asked: dict[str, int], code: int) -> None:
    refused = desk.fetch_one(16, "t", **asked)
    assert refused.error_code == code
    assert _offsets(refused) == (-1, -1, -1)
    assert (refused.aborted_transactions, refused.records) == (None, b"")
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == UNCHANGED


@pytest.mark.parametrize("version", [15, 16])
def test_a_client_of_an_older_leader(desk: RecordDesk, version: int) -> None:
    log = desk.broker.store.partition("t", 0)
    log.become_leader(log.leader_epoch + 3)
    refused = desk.fetch_one(version, "t", 0, current_leader_epoch=log.leader_epoch - 1)
    assert refused.error_code == codes.FENCED_LEADER_EPOCH
    told = (desk.broker.node.node_id, log.leader_epoch) if version >= 16 else UNCHANGED
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == told
    assert desk.fetch_one(version, "t", 0, current_leader_epoch=log.leader_epoch).error_code == 0


@pytest.mark.parametrize("version", [12, 16])
def test_another_broker_would_be_no_replica(desk: RecordDesk, version: int) -> None:
    replica = {"replica_id": 5} if version == 12 else {"replica_state": {"replica_id": 5, "replica_epoch": -1}}
    refused = desk.fetch_one(version, "t", 0, **replica)
    assert refused.error_code == codes.NOT_LEADER_OR_FOLLOWER
    told = (desk.broker.node.node_id, desk.broker.store.partition("t", 0).leader_epoch) if version == 16 else UNCHANGED
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == told


def test_where_a_client_went_another_way(desk: RecordDesk) -> None:
    epoch = desk.broker.store.partition("t", 0).leader_epoch
    parted = desk.fetch_one(16, "t", 9999, last_fetched_epoch=epoch)
    assert (parted.error_code, parted.records) == (0, b"")
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (epoch, 12)
    assert _offsets(parted) == (12, 12, 0)
    together = desk.fetch_one(16, "t", 2, last_fetched_epoch=epoch)
    assert (together.diverging_epoch.epoch, together.diverging_epoch.end_offset) == UNCHANGED
    assert together.records


def test_the_end_of_the_log(desk: RecordDesk) -> None:
    at_end = desk.fetch_one(13, "t", 12)
    assert (at_end.error_code, at_end.records, at_end.aborted_transactions) == (0, b"", None)
    assert _offsets(at_end) == (12, 12, 0)
    assert desk.fetch_one(13, "t", 12, isolation_level=1).aborted_transactions == ()


@pytest.mark.parametrize("version", [4, 12, 13])
def test_an_isolation_that_does_not_exist(desk: RecordDesk, version: int) -> None:
    answer = desk.fetched(version, {"t": [{"partition": 0, "fetch_offset": 0}]}, isolation_level=2)
    if version >= 13:
        assert (answer.error_code, answer.responses) == (codes.UNKNOWN_SERVER_ERROR, ())
    else:
        assert answer.responses[0].partitions[0].error_code == codes.UNKNOWN_SERVER_ERROR


def test_what_is_read_is_limited(desk: RecordDesk) -> None:
    size = len(batch(b"0"))

    def sizes(**options: Any) -> list[int]:
        asked = {"fetch_offset": 0, "partition_max_bytes": options.pop("partition_max_bytes", 1 << 20)}
        both = [{"partition": 0, **asked}, {"partition": 1, **asked}]
        return [len(one.records) for one in desk.fetched(13, {"t": both}, **options).responses[0].partitions]

    assert sizes(max_bytes=0) == [size, 0]
    assert sizes(max_bytes=size + 30) == [size + 30, 0]
    assert sizes(partition_max_bytes=1) == [size, 0]
    assert sizes(partition_max_bytes=100) == [100, 100]
    assert sizes() == [len(desk.broker.store.partition("t", n).read_slice(0).read()) for n in (0, 1)]


def test_a_limit_below_zero_is_one_for_the_first_partition(desk: RecordDesk) -> None:
    desk.produce_one(9, "t", batch(), partition=2)
    asked = [{"partition": number, "fetch_offset": 0} for number in range(3)]
    found = desk.fetched(11, {"t": asked}, max_bytes=-1).responses[0].partitions
    assert [one.error_code for one in found] == [codes.UNKNOWN_SERVER_ERROR, 0, 0]
    assert [len(one.records) for one in found] == [0, len(batch()), 0]


def test_the_first_batch_is_always_whole(desk: RecordDesk) -> None:
    large = batch(b"x" * 100_000)
    desk.produce_one(9, "t", large, partition=2)
    found = desk.fetch_one(13, "t", 0, partition=2, max_bytes=10, partition_max_bytes=10)
    assert len(found.records) == len(large)


@pytest.fixture
def broker_config() -> dict[str, object]:
    return {"fetch.max.bytes": 1024}


def test_the_broker_has_a_limit_too(desk: RecordDesk) -> None:
    for _ in range(20):
        desk.produce_one(9, "t", batch(b"x" * 100), partition=3)
    assert len(desk.fetch_one(13, "t", 0, partition=3).records) == 1024


def test_a_partition_that_is_asked_for_twice(desk: RecordDesk) -> None:
    asked = [
        {"partition": 0, "fetch_offset": 3},
        {"partition": 1, "fetch_offset": 0},
        {"partition": 0, "fetch_offset": 11},
    ]
    (topic,) = desk.fetched(13, {"t": asked}).responses
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    assert [one.base_offset for one in scan(topic.partitions[0].records)] == [11]


def test_partitions_that_do_not_exist_come_last(desk: RecordDesk) -> None:
    asked = {"gone": [{"partition": 0, "fetch_offset": 0}], "t": [{"partition": 0, "fetch_offset": 0}]}
    answer = desk.fetched(12, asked)
    assert [one.topic for one in answer.responses] == ["t", "gone"]


def test_another_topic_of_the_same_name(desk: RecordDesk) -> None:
    asked = {"t": [{"partition": 0, "fetch_offset": 0}]}
    session = desk.fetched(13, asked, session_epoch=0).session_id
    old = desk.fetch_request(13, asked)
    desk.broker.store.delete_topic("t")
    gone = decode(handler.API.bound_to(desk.broker)(old), FETCH, 13)
    assert gone.responses[0].partitions[0].error_code == codes.UNKNOWN_TOPIC_ID
    in_session = desk.fetched(13, {}, session_id=session, session_epoch=1)
    assert in_session.responses[0].partitions[0].error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    desk.create_topic("t")
    in_session = desk.fetched(13, {}, session_id=session, session_epoch=2)
    assert in_session.responses[0].partitions[0].error_code == codes.INCONSISTENT_TOPIC_ID


def test_records_below_the_start_are_gone(desk: RecordDesk) -> None:
    desk.broker.store.partition("t", 0).delete_records(5)
    assert desk.fetch_one(13, "t", 4).error_code == codes.OFFSET_OUT_OF_RANGE
    found = desk.fetch_one(13, "t", 5)
    assert _offsets(found) == (12, 12, 5)


def _transactional(producer_id: int, *values: bytes) -> bytes:
    return batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_committed_readers(desk: RecordDesk, version: int) -> None:
    partitions = desk.broker.partitions

    def append(content: bytes) -> None:
        partition = partitions.get("t", 3)
        assert partition is not None
        partition.append(bytearray(content))

    def end(producer_id: int, commit: bool) -> None:
        partitions.end_transaction(
            "t",
            3,
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            transaction_version=0,
        )

    append(_transactional(1, b"aborted"))
    append(_transactional(2, b"committed"))
    end(1, False)
    end(2, True)
    append(_transactional(3, b"open"))
    committed = desk.fetch_one(version, "t", 0, partition=3, isolation_level=1)
    assert (committed.high_watermark, committed.last_stable_offset) == (5, 4)
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions] == [(1, 0)]
    assert [one.base_offset for one in scan(committed.records)] == [0, 1, 2, 3]
    everything = desk.fetch_one(version, "t", 0, partition=3)
    assert everything.aborted_transactions is None
    assert [one.base_offset for one in scan(everything.records)] == [0, 1, 2, 3, 4]
    beyond = desk.fetch_one(version, "t", 4, partition=3, isolation_level=1)
    assert (beyond.error_code, beyond.records, beyond.aborted_transactions) == (0, b"", ())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("the disk is gone"), codes.KAFKA_STORAGE_ERROR),
        (CorruptRecord("not a batch"), codes.CORRUPT_MESSAGE),
    ],
)
def test_a_failing_disk(
    desk: RecordDesk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: int,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(ReadableSegment, "find_batch", fail)
    monkeypatch.setattr(ReadableSegment, "read", fail)
    for _ in range(2):
        assert desk.fetch_one(13, "t", 0).error_code == code
    assert caplog.messages == [f"a request could not be served: {error}"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_whole_request_can_be_refused(desk: RecordDesk, version: int) -> None:
    request = desk.fetch_request(version, {"t": [{"partition": 1, "fetch_offset": 0}]}, session_id=9)
    answer = decode(handler.refuse(request, codes.UNKNOWN_SERVER_ERROR, "why"), FETCH, version)
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (codes.UNKNOWN_SERVER_ERROR, 9)
    if version < 13:
        assert [one.error_code for one in answer.responses[0].partitions] == [codes.UNKNOWN_SERVER_ERROR]
    else:
        assert answer.responses == ()
