"""Produce: what is written, what is refused and with which words. The codes are those that Kafka 4.3.1 answered."""

from __future__ import annotations

import struct
import threading
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.handlers.records import produce as handler
from duralog.broker.produce import long_appends
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import CLOSE, NO_ANSWER, DelayedAnswer
from duralog.errors import InvalidRecord, StorageError
from duralog.format import record_batch
from duralog.format.batches import scan
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.writer import LogWriter
from oracle.hostile_batches import batch as odd_batch
from oracle.hostile_batches import message as old_message
from oracle.hostile_batches import record as odd_record
from tests.support.broker.record_desk import PRODUCE, Answered, RecordDesk, batch, decode, now_ms, records

VERSIONS = range(3, 14)


@pytest.fixture
def desk(idle_broker: Broker) -> RecordDesk:
    desk = RecordDesk(idle_broker)
    desk.create_topic("t", 4)
    return desk


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_written_and_their_offsets_reported(desk: RecordDesk, version: int, acks: int) -> None:
    first = desk.produce_one(version, "t", batch(b"a", b"b"), acks=acks)
    second = desk.produce_one(version, "t", batch(b"c"), acks=acks)
    assert (first.error_code, first.base_offset, first.log_append_time) == (0, 0, -1)
    assert (second.error_code, second.base_offset) == (0, 2)
    if version >= 5:
        assert second.log_start_offset == 0
    log = desk.broker.store.partition("t", 0)
    assert [record.value for record in log.read(0)] == [b"a", b"b", b"c"]


def test_several_partitions_and_topics_in_one_request(desk: RecordDesk) -> None:
    desk.create_topic("u", 1)
    answer = decode(
        desk.produce(9, {"t": {3: batch(), 0: batch()}, "gone": {0: batch()}, "u": {0: batch(), 7: batch()}}),
        PRODUCE,
        9,
    )
    found = [(topic.name, one.index, one.error_code) for topic in answer.responses for one in topic.partition_responses]
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [("t", 3, 0), ("t", 0, 0), ("gone", 0, unknown), ("u", 0, 0), ("u", 7, unknown)]


def test_a_batch_is_stamped_where_it_was_received(desk: RecordDesk) -> None:
    desk.produce_one(9, "t", batch())
    content = batch(b"as it was sent")
    request = desk.produce_request(9, {"t": {0: content}})
    position = bytes(request.body).index(content)
    handler.API.bound_to(desk.broker)(request)
    received = bytes(request.body[position : position + len(content)])
    (stamped,) = scan(received)
    assert (stamped.base_offset, stamped.leader_epoch) == (1, desk.broker.store.partition("t", 0).leader_epoch)
    assert desk.broker.store.partition("t", 0).read_slice(1).read() == received


def _short_length() -> bytes:
    whole = bytearray(batch())
    struct.pack_into(">i", whole, 8, 5)
    return bytes(whole)


def _too_short(base_offset: int) -> bytes:
    """What says that it is a batch and has less than a header."""
    whole = bytearray(batch()[:40])
    struct.pack_into(">qi", whole, 0, base_offset, 28)
    return bytes(whole)


def _wrong_magic() -> bytes:
    whole = bytearray(batch())
    whole[16] = 5
    return bytes(whole)


@pytest.mark.parametrize(
    ("content", "code", "start"),
    [
        pytest.param(b"", codes.INVALID_RECORD, -1, id="no batch"),
        pytest.param(None, codes.INVALID_RECORD, -1, id="null"),
        pytest.param(batch()[:-3], codes.INVALID_RECORD, -1, id="half a batch"),
        pytest.param(batch()[:10], codes.INVALID_RECORD, -1, id="half a header"),
        pytest.param(batch() + batch(), codes.INVALID_RECORD, -1, id="two batches"),
        pytest.param(batch() + b"\xff" * 40, codes.CORRUPT_MESSAGE, -1, id="garbage behind"),
        pytest.param(old_message(1, b"k", b"v"), codes.INVALID_RECORD, -1, id="format 1"),
        pytest.param(_wrong_magic(), codes.CORRUPT_MESSAGE, -1, id="format 5"),
        pytest.param(_too_short(0), codes.CORRUPT_MESSAGE, -1, id="less than a header"),
        pytest.param(_too_short(40), codes.INVALID_RECORD, 0, id="less than a header, base offset"),
        pytest.param(old_message(0, None, b"")[:8] + b"\0\0\0\x0d", codes.INVALID_RECORD, -1, id="cut after length"),
        pytest.param(_short_length(), codes.CORRUPT_MESSAGE, -1, id="length too small"),
        pytest.param(batch()[:-1] + b"X", codes.CORRUPT_MESSAGE, -1, id="checksum"),
        pytest.param(batch(base_offset=5), codes.INVALID_RECORD, 0, id="base offset"),
        pytest.param(batch(is_control=True), codes.INVALID_RECORD, 0, id="control batch"),
        pytest.param(odd_batch(odd_record(length=b"\x01"), base_offset=0), codes.INVALID_RECORD, 0, id="record length"),
        pytest.param(odd_batch(odd_record(key=b"\x7e"), base_offset=0), codes.INVALID_RECORD, 0, id="key length"),
        pytest.param(odd_batch(b"", count=0, last_offset_delta=-1, base_offset=0), codes.INVALID_RECORD, 0, id="empty"),
        pytest.param(odd_batch(odd_record(), last_offset_delta=3, base_offset=0), codes.INVALID_RECORD, 0, id="deltas"),
        pytest.param(odd_batch(odd_record() + b"abc", base_offset=0), codes.INVALID_RECORD, 0, id="bytes left over"),
        pytest.param(odd_batch(b"garbage", attributes=1, base_offset=0), codes.UNKNOWN_SERVER_ERROR, 0, id="gzip"),
        pytest.param(odd_batch(b"garbage", attributes=7, base_offset=0), codes.UNKNOWN_SERVER_ERROR, 0, id="codec 7"),
    ],
)
def test_batches_that_are_refused(desk: RecordDesk, content: bytes | None, code: int, start: int) -> None:
    refused = desk.produce_one(9, "t", content)
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (code, -1, start)
    assert refused.record_errors == ()
    assert desk.end_offset("t") == 0


def test_half_a_batch_behind_a_whole_one_is_ignored(desk: RecordDesk) -> None:
    assert desk.produce_one(9, "t", batch() + batch()[:30]).error_code == 0
    assert desk.end_offset("t") == 1


@pytest.mark.parametrize(("version", "code"), [(6, codes.UNSUPPORTED_COMPRESSION_TYPE), (7, codes.NONE)])
def test_zstd_needs_version_7(desk: RecordDesk, version: int, code: int) -> None:
    assert desk.produce_one(version, "t", batch(codec=Codec.ZSTD)).error_code == code


@pytest.mark.parametrize("version", [9, 13])
def test_what_does_not_exist(desk: RecordDesk, version: int) -> None:
    unknown = codes.UNKNOWN_TOPIC_ID if version == 13 else codes.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.produce_one(version, "gone", batch()).error_code == unknown
    assert desk.produce_one(version, "t", batch(), partition=99).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.produce_one(version, "t", batch(), partition=-1).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_the_metadata_log_is_no_topic(desk: RecordDesk) -> None:
    assert desk.produce_one(9, "__cluster_metadata", batch()).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(desk: RecordDesk, acks: int) -> None:
    assert desk.produce_one(9, "t", batch(), acks=acks).error_code == codes.INVALID_REQUIRED_ACKS
    assert desk.produce_one(9, "gone", batch(), acks=acks).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.end_offset("t") == 0


def test_without_acks_there_is_no_answer_and_errors_end_the_connection(desk: RecordDesk) -> None:
    assert desk.produce(9, {"t": {0: batch()}}, acks=0) is NO_ANSWER
    assert desk.end_offset("t") == 1
    assert desk.produce(9, {"gone": {0: batch()}}, acks=0) is CLOSE
    assert desk.produce(9, {"t": {0: batch()[:-1] + b"X"}}, acks=0) is CLOSE


def test_internal_topics_are_for_tools_only(desk: RecordDesk) -> None:
    desk.create_topic("__consumer_offsets", cleanup_policy="compact")
    refused = desk.produce_one(9, "__consumer_offsets", batch())
    assert (refused.error_code, refused.log_start_offset) == (codes.INVALID_TOPIC_EXCEPTION, -1)


def test_sizes(desk: RecordDesk) -> None:
    desk.create_topic("small", max_message_bytes=200)
    desk.create_topic("short", max_message_bytes=2 << 20, segment_bytes=1 << 20)
    too_large = desk.produce_one(9, "small", batch(b"x" * 500))
    assert (too_large.error_code, too_large.log_start_offset) == (codes.MESSAGE_TOO_LARGE, -1)
    assert desk.produce_one(9, "short", batch(b"x" * (1 << 20))).error_code == codes.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("version", [7, 8, 9, 13])
def test_single_records_are_named(desk: RecordDesk, version: int) -> None:
    desk.create_topic("compacted", cleanup_policy="compact")
    mixed = record_batch.encode([*records(b"a"), *records(b"b", b"c", key=None)])
    refused = desk.produce_one(version, "compacted", mixed)
    assert (refused.error_code, refused.log_start_offset) == (codes.INVALID_RECORD, 0)
    if version >= 8:
        assert [one.batch_index for one in refused.record_errors] == [1, 2]
        assert all("without key" in one.batch_index_error_message for one in refused.record_errors)
        assert all("compacted-0" in one.batch_index_error_message for one in refused.record_errors)
        assert "2 record errors" in refused.error_message


def test_times(desk: RecordDesk) -> None:
    desk.create_topic("stamped", message_timestamp_type="LogAppendTime")
    far = record_batch.encode([*records(b"a"), *records(b"b", timestamp_ms=now_ms() + 10 * 3_600_000)])
    refused = desk.produce_one(9, "t", far)
    assert refused.error_code == codes.INVALID_TIMESTAMP
    assert [one.batch_index for one in refused.record_errors] == [1]
    assert desk.produce_one(9, "stamped", batch()).log_append_time >= now_ms() - 60_000
    marked = batch(timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=now_ms())
    assert desk.produce_one(9, "t", marked).error_code == 0


def _from(sequence: int, epoch: int = 0, **options: Any) -> bytes:
    return batch(b"v", producer_id=42, producer_epoch=epoch, base_sequence=sequence, **options)


def test_idempotent_producers(desk: RecordDesk) -> None:
    sent = _from(0)
    first = desk.produce_one(9, "t", sent)
    repeated = desk.produce_one(9, "t", sent)
    assert (first.base_offset, first.log_append_time) == (0, -1)
    (written,) = scan(sent)
    # Kafka tells the time of the batch that it has already.
    assert (repeated.error_code, repeated.base_offset) == (0, 0)
    assert repeated.log_append_time == written.max_timestamp_ms
    assert desk.end_offset("t") == 1
    gap = desk.produce_one(9, "t", _from(7))
    assert (gap.error_code, gap.log_start_offset) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    assert desk.produce_one(9, "t", _from(0, epoch=1)).error_code == 0
    fenced = desk.produce_one(9, "t", _from(1))
    assert (fenced.error_code, fenced.log_start_offset) == (codes.INVALID_PRODUCER_EPOCH, 0)
    assert desk.produce_one(9, "t", _from(4, epoch=2)).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert desk.produce_one(9, "t", _from(-1, epoch=2)).error_code == codes.INVALID_RECORD


def test_transactional_batches_without_a_transactional_id(desk: RecordDesk) -> None:
    answer = decode(
        desk.produce(9, {"t": {0: _from(0, is_transactional=True), 1: batch()}, "gone": {0: batch()}}), PRODUCE, 9
    )
    found = [one.error_code for topic in answer.responses for one in topic.partition_responses]
    assert found == [codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 3
    assert desk.end_offset("t", 1) == 0


def test_transactional_batches_of_two_producers(desk: RecordDesk) -> None:
    other = batch(producer_id=43, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = desk.produce(9, {"t": {0: _from(0, is_transactional=True), 1: other}}, transactional_id="tx")
    found = [one.error_code for one in decode(answer, PRODUCE, 9).responses[0].partition_responses]
    assert found == [codes.INVALID_PRODUCER_ID_MAPPING] * 2


@pytest.mark.parametrize("version", [11, 12])
def test_the_coordinator_is_asked_about_transactional_batches(
    desk: RecordDesk, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def check(*arguments: Any) -> dict[tuple[str, int], int]:
        asked.append(arguments)
        return {("t", 1): codes.INVALID_TXN_STATE}

    monkeypatch.setattr(desk.broker.appends, "check_transaction", check)
    appended: list[int] = []
    append = PartitionLog.append_batches

    def noting(log: PartitionLog, data: Any, *, transaction_version: int = 0, **options: Any) -> Any:
        appended.append(transaction_version)
        return append(log, data, transaction_version=transaction_version, **options)

    monkeypatch.setattr(PartitionLog, "append_batches", noting)
    content = {0: _from(0, is_transactional=True), 1: _from(0, is_transactional=True), 2: batch()}
    answer = decode(desk.produce(version, {"t": content}, transactional_id="tx"), PRODUCE, version)
    assert asked == [("tx", 42, 0, [("t", 0), ("t", 1)], version)]
    found = [one.error_code for one in answer.responses[0].partition_responses]
    assert found == [0, codes.INVALID_TXN_STATE, 0]
    assert appended == [2 if version >= 12 else 0, 0]


def test_a_failing_disk(desk: RecordDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(PartitionLog, "append_batches", fail)
    for _ in range(2):
        refused = desk.produce_one(9, "t", batch())
        assert (refused.error_code, refused.log_start_offset) == (codes.KAFKA_STORAGE_ERROR, -1)
    with pytest.raises(StorageError):
        desk.broker.partitions.append_records("t", 0, [Record(value=b"of a coordinator")])
    assert caplog.messages == ["a request could not be served: no space left"]


def test_a_mistake_of_ours_hurts_one_partition(
    desk: RecordDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = PartitionLog.append_batches

    def fail(log: PartitionLog, *arguments: Any, **options: Any) -> Any:
        if log.partition == 1:
            raise ZeroDivisionError
        return append(log, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "append_batches", fail)
    answer = decode(desk.produce(9, {"t": {0: batch(), 1: batch(), 2: batch()}}), PRODUCE, 9)
    found = [one.error_code for one in answer.responses[0].partition_responses]
    assert found == [0, codes.UNKNOWN_SERVER_ERROR, 0]
    assert "ZeroDivisionError" in caplog.text


def _settle(broker: Broker, answered: Answered) -> None:
    while not answered.answers:
        broker.run_pending()


def test_recompressing_runs_on_a_worker_thread_and_keeps_the_order(desk: RecordDesk) -> None:
    desk.create_topic("packed", compression_type="zstd")
    waiting = [Answered(desk.produce(9, {"packed": {0: batch(b"%d" % n)}, "t": {0: batch()}})) for n in range(20)]
    # Nothing to compress, but it came after them.
    waiting.append(Answered(desk.produce(9, {"packed": {0: batch(b"20", codec=Codec.ZSTD)}})))
    # All of them hold their batches, and count towards queued.max.requests, though one runs at a time.
    assert desk.broker.server.background_requests == 21
    for one in waiting:
        _settle(desk.broker, one)
    assert desk.broker.server.background_requests == 0
    log = desk.broker.store.partition("packed", 0)
    assert [record.value for record in log.read(0)] == [b"%d" % n for n in range(21)]
    data = log.read_slice(0).read()
    assert {one.codec_id for one in scan(data)} == {Codec.ZSTD.value}
    offsets = [decode(one.only, PRODUCE, 9).responses[0].partition_responses[0].base_offset for one in waiting]
    assert offsets == list(range(21))
    # With nothing in line any more, what has the right codec is written on the loop.
    assert not isinstance(desk.produce(9, {"packed": {0: batch(codec=Codec.ZSTD)}}), DelayedAnswer)


def test_large_compressed_batches_are_unpacked_on_a_worker_thread(desk: RecordDesk) -> None:
    noise = bytes(range(256)) * 16
    large = record_batch.encode(records(*[noise + b"%d" % n for n in range(3000)]), codec=Codec.GZIP, level=1)
    assert len(large) > 64 << 10
    answered = Answered(desk.produce(9, {"t": {0: large}}))
    _settle(desk.broker, answered)
    assert desk.end_offset("t") == 3000


def test_small_batches_that_unpack_to_much_are_retried_on_a_worker_thread(desk: RecordDesk) -> None:
    bomb = record_batch.encode(records(bytes(2 << 20)), codec=Codec.ZSTD)
    assert len(bomb) < 1000
    late = desk.produce(9, {"t": {0: batch(), 1: bomb, 2: batch()}})
    assert isinstance(late, DelayedAnswer)
    assert [desk.end_offset("t", number) for number in range(3)] == [1, 0, 1]
    # What comes after it waits in line.
    behind = Answered(desk.produce(9, {"t": {1: batch(b"behind")}}))
    answered = Answered(late)
    _settle(desk.broker, behind)
    told = decode(answered.only, PRODUCE, 9).responses[0].partition_responses
    assert [(one.index, one.error_code, one.base_offset) for one in told] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    sizes = [len(record.value or b"") for record in desk.broker.store.partition("t", 1).read(0)]
    assert sizes == [2 << 20, len(b"behind")]
    # Also where the request asked for a closer look.
    both = Answered(desk.produce(9, {"t": {1: bomb}, "missing": {0: batch()}}))
    _settle(desk.broker, both)
    assert desk.end_offset("t", 1) == 3


def test_batches_that_are_checked_record_by_record_run_on_a_worker_thread(desk: RecordDesk) -> None:
    """Too late for their topic, or with offsets that are not in order: both are cheap to send and not to look at."""
    count = 2000
    late = record_batch.encode(records(*[b"v"] * count, timestamp_ms=now_ms() + 10**9))
    disorder = odd_batch(
        odd_record() * count,
        count=count,
        last_offset_delta=count - 1,
        base_offset=0,
        base_timestamp_ms=now_ms(),
        max_timestamp_ms=now_ms(),
    )
    for content, code, errors in ((late, codes.INVALID_TIMESTAMP, count), (disorder, 0, 0)):
        answered = Answered(desk.produce(9, {"t": {0: content}}))
        assert answered.answers == []
        _settle(desk.broker, answered)
        (told,) = decode(answered.only, PRODUCE, 9).responses[0].partition_responses
        assert (told.error_code, len(told.record_errors)) == (code, errors)
    assert [record.offset for record in desk.broker.store.partition("t", 0).read(0)] == list(range(count))


def test_batches_that_unpack_to_more_than_there_is_memory_for(
    desk: RecordDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_appends, "UNPACKED_TOGETHER_BYTES", 3 << 19)
    monkeypatch.setattr(long_appends, "unpacked_limit", lambda _: 3 << 20)
    for size, code in ((1 << 20, 0), (2 << 20, 0), (4 << 20, codes.MESSAGE_TOO_LARGE)):
        bomb = record_batch.encode(records(bytes(size)), codec=Codec.ZSTD)
        answered = Answered(desk.produce(9, {"t": {0: bomb}}))
        _settle(desk.broker, answered)
        (told,) = decode(answered.only, PRODUCE, 9).responses[0].partition_responses
        assert told.error_code == code
    assert told.error_message is not None
    assert "at most 3145728 bytes" in told.error_message
    assert desk.end_offset("t") == 2


def test_appends_that_wait_for_the_disk_run_on_a_worker_thread(
    desk: RecordDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create_topic("safe", flush_messages=3)
    of_loop, flushed_by = threading.current_thread(), []
    flush = LogWriter.flush

    def noting(writer: LogWriter, end_offset: int | None = None) -> None:
        flushed_by.append(threading.current_thread())
        flush(writer, end_offset)

    monkeypatch.setattr(LogWriter, "flush", noting)
    assert not isinstance(desk.produce(9, {"safe": {0: batch(b"1", b"2")}}), DelayedAnswer)
    answered = Answered(desk.produce(9, {"safe": {0: batch(b"3")}}))
    assert answered.answers == []
    _settle(desk.broker, answered)
    assert desk.broker.store.partition("safe", 0).recovery_point == 3
    assert len(flushed_by) == 1
    assert of_loop not in flushed_by
    assert not isinstance(desk.produce(9, {"safe": {0: batch(b"4", b"5")}}), DelayedAnswer)


def test_a_log_that_another_thread_changes_does_not_hold_up_the_loop(desk: RecordDesk) -> None:
    """A swap of compacted segments holds the log's lock while it waits for the disk."""
    desk.create_topic("busy")
    held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with desk.broker.store.partition("busy", 0).writers_waiting():
            held.set()
            assert may_end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    first = Answered(desk.produce(9, {"busy": {0: batch(b"1")}}))
    second = Answered(desk.produce(9, {"busy": {0: batch(b"2")}}))
    assert first.answers == second.answers == []
    may_end.set()
    holder.join()
    _settle(desk.broker, first)
    _settle(desk.broker, second)
    offsets = [
        decode(each.only, PRODUCE, 9).responses[0].partition_responses[0].base_offset for each in (first, second)
    ]
    assert offsets == [0, 1]
    assert not isinstance(desk.produce(9, {"busy": {0: batch(b"3")}}), DelayedAnswer)


def test_errors_on_worker_threads_are_reported(desk: RecordDesk) -> None:
    desk.create_topic("packed", compression_type="zstd", cleanup_policy="compact")
    answered = Answered(desk.produce(9, {"packed": {0: record_batch.encode(records(b"v", key=None))}}))
    _settle(desk.broker, answered)
    (refused,) = decode(answered.only, PRODUCE, 9).responses[0].partition_responses
    assert refused.error_code == codes.INVALID_RECORD
    assert [one.batch_index for one in refused.record_errors] == [0]
    closed = Answered(desk.produce(9, {"packed": {0: record_batch.encode(records(b"v", key=None))}}, acks=0))
    _settle(desk.broker, closed)
    assert closed.only is CLOSE


def test_a_topic_that_was_deleted_meanwhile(desk: RecordDesk) -> None:
    desk.produce_one(9, "t", batch())
    desk.broker.store.delete_topic("t")
    assert desk.produce_one(9, "t", batch()).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    desk.create_topic("t", 4)
    again = desk.produce_one(9, "t", batch())
    assert (again.error_code, again.base_offset) == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_whole_request_can_be_refused(desk: RecordDesk, version: int) -> None:
    request = desk.produce_request(version, {"t": {0: batch(), 1: batch()}})
    answer = decode(handler.refuse(request, codes.UNKNOWN_SERVER_ERROR, "why"), PRODUCE, version)
    found = [(one.index, one.error_code, one.base_offset) for one in answer.responses[0].partition_responses]
    assert found == [(0, -1, -1), (1, -1, -1)]


def test_records_of_coordinators_are_one_batch(desk: RecordDesk) -> None:
    partitions = desk.broker.partitions
    written = partitions.append_records("t", 0, records(b"a", b"b"))
    in_transaction = partitions.append_records("t", 0, records(b"c", timestamp_ms=-1), producer_id=7, producer_epoch=3)
    assert (written.base_offset, in_transaction.base_offset) == (0, 2)
    log = desk.broker.store.partition("t", 0)
    first, second = scan(log.read_slice(0).read())
    assert (first.record_count, first.is_transactional) == (2, False)
    assert (second.producer_id, second.producer_epoch, second.is_transactional) == (7, 3, True)
    assert second.max_timestamp_ms >= now_ms() - 60_000
    assert log.last_stable_offset == 2
    partitions.end_transaction(
        "t", 0, producer_id=7, producer_epoch=3, commit=True, coordinator_epoch=0, transaction_version=0
    )
    assert log.last_stable_offset == 4
    with pytest.raises(InvalidRecord):
        partitions.append_records("t", 0, [])
