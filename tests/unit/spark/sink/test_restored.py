"""`preserveOffsets`: a backup comes back with its offsets, gaps, times and start; what cannot go there is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from duralog.errors import InvalidRecord, OffsetOutOfRange
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.record import Record, TimestampType
from duralog.storage.log.partition_log import AppendOrigin
from duralog.storage.store import Store
from tests.support.spark.staged_writes import NOW_MS, make_topic, offsets_in, options_of, rows_of, values_in, write


def rows(offsets: list[int], *, partition: int = 0, types: list[int] | None = None) -> pa.RecordBatch:
    columns: dict[str, object] = {
        "topic": ["t"] * len(offsets),
        "partition": [partition] * len(offsets),
        "offset": offsets,
        "key": [b"%d" % offset for offset in offsets],
        "value": [b"value %d" % offset for offset in offsets],
        "timestamp": [1000 + offset // 10 for offset in offsets],
    }
    if types is not None:
        columns["timestampType"] = pa.array(types, pa.int32())
    return rows_of(**columns)


def test_offsets_gaps_and_the_start_are_kept(tmp_path: Path) -> None:
    options = options_of(tmp_path, preserveOffsets="true", partitions=2, codec="zstd")
    write(options, [rows([105, 106, 110]), rows([7], partition=1)], [rows([200, 5_000_000_000])])
    assert offsets_in(tmp_path, "t", 0) == [105, 106, 110, 200, 5_000_000_000]
    assert offsets_in(tmp_path, "t", 1) == [7]
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        assert (log.start_offset, log.end_offset) == (105, 5_000_000_001)
        assert [record.timestamp_ms for record in log.read(106, max_bytes=1)][-1] == 1011
        log.append([Record(value=b"next")])
        assert [record.offset for record in log.read(5_000_000_001)] == [5_000_000_001]
        assert log.leader_epochs.epoch_for(105) == log.leader_epochs.latest_epoch != NO_LEADER_EPOCH


def test_a_new_topic_has_the_partitions_of_its_rows(tmp_path: Path) -> None:
    options = options_of(tmp_path, preserveOffsets="true")
    write(options, [rows([5]), rows([7], partition=3)], [rows([6], partition=1)])
    with Store(str(tmp_path)) as store:
        assert store.partition_count("t") == 4
    assert [offsets_in(tmp_path, "t", partition) for partition in range(4)] == [[5], [6], [], [7]]
    with pytest.raises(InvalidRecord, match="column partition, row 0 of task 0: 4: t has the partitions 0 to 3"):
        write(options, [rows([5], partition=4)])


def test_tasks_may_hold_any_part_of_a_partition(tmp_path: Path) -> None:
    options = options_of(tmp_path, preserveOffsets="true")
    write(options, [rows([50, 51])], [rows([10, 20]), rows([30])], [rows([40])])
    assert offsets_in(tmp_path, "t", 0) == [10, 20, 30, 40, 50, 51]


def test_it_continues_where_the_log_ends(tmp_path: Path) -> None:
    options = options_of(tmp_path, preserveOffsets="true")
    write(options, [rows([3, 4])])
    write(options, [rows([9])])
    assert offsets_in(tmp_path, "t", 0) == [3, 4, 9]
    with pytest.raises(OffsetOutOfRange, match="t-0 ends at 10: offset 9 cannot be appended before that"):
        write(options, [rows([9, 10])])
    assert offsets_in(tmp_path, "t", 0) == [3, 4, 9]


def test_log_append_time_is_kept(tmp_path: Path) -> None:
    options = options_of(tmp_path, preserveOffsets="true")
    write(options, [rows([1, 2, 11, 12, 13], types=[1, 1, 1, 0, 0])])
    with Store(str(tmp_path), read_only=True) as store:
        found = [(record.timestamp_ms, record.timestamp_type) for record in store.partition("t", 0).read(1)]
    stamped, created = TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME
    assert found == [(1000, stamped), (1000, stamped), (1001, stamped), (1001, created), (1001, created)]


def test_a_record_without_a_timestamp_gets_none(tmp_path: Path) -> None:
    row = rows_of(
        topic=["t"], partition=[0], offset=[4], value=["x"], timestamp=pa.array([None], pa.timestamp("us", "UTC"))
    )
    write(options_of(tmp_path, preserveOffsets="true"), [row])
    with Store(str(tmp_path), read_only=True) as store:
        (record,) = store.partition("t", 0).read(4)
    assert record.timestamp_ms == -1


BAD: dict[str, tuple[list[list[pa.RecordBatch]], str]] = {
    "not sorted": ([[rows([5, 4])]], "column offset, row 1 of task 0, for t-0: expected more than 5, found 4"),
    "not sorted over chunks": ([[rows([5]), rows([5])]], "row 1 of task 0, for t-0: expected more than 5, found 5"),
    "overlapping": ([[rows([1, 9])], [rows([5])]], "two tasks have offsets of t-0 that overlap, up to 9 and from 5 on"),
    "negative": ([[rows([-1])]], "column offset, row 0 of task 0, for t-0: expected 0 or more"),
    "the last number of all": ([[rows([5, 2**63 - 1])]], "column offset, row 1 of task 0, for t-0: expected less than"),
    "no partition": ([[rows([1]).drop_columns(["partition"])]], "column partition is missing"),
    "no offset": ([[rows([1]).drop_columns(["offset"])]], "column offset is missing"),
    "null partition": (
        [[rows_of(topic=["t"], offset=[1], value=["x"], partition=pa.array([None], pa.int32()))]],
        "a record that keeps its offset keeps its partition",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_restored(tmp_path: Path, case: str) -> None:
    tasks, told = BAD[case]
    with pytest.raises(InvalidRecord) as refused:
        write(options_of(tmp_path, preserveOffsets="true"), *tasks, gathered_bytes=1)
    assert told in str(refused.value)
    assert not tmp_path.exists() or values_in(tmp_path) == {}


def test_old_records_survive_the_restore(tmp_path: Path) -> None:
    """Retention must not take back what was just restored; it is the topic's configs that decide later."""
    make_topic(tmp_path, "t", 1, {"retention.ms": 1000})
    write(options_of(tmp_path, preserveOffsets="true"), [rows([1])])
    assert offsets_in(tmp_path, "t", 0) == [1]


# The log's own part


def test_only_an_empty_log_can_start_elsewhere(tmp_path: Path) -> None:
    make_topic(tmp_path, "t")
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        log.start_at(100)
        log.start_at(100)
        assert (log.start_offset, log.end_offset, len(log.segments)) == (100, 100, 1)
        with pytest.raises(OffsetOutOfRange, match="ends at 100"):
            log.start_at(99)
        log.append([Record(value=b"x")])
        with pytest.raises(OffsetOutOfRange, match="without records"):
            log.start_at(200)
    with Store(str(tmp_path)) as store:
        log = store.partition("t", 0)
        assert (log.start_offset, log.end_offset) == (100, 101)
        assert [segment.base_offset for segment in log.segments] == [100]


def test_restored_batches_are_written_in_the_logs_epoch_unless_they_have_one(tmp_path: Path) -> None:
    make_topic(tmp_path, "source")
    make_topic(tmp_path, "t")
    with Store(str(tmp_path), clock=lambda: NOW_MS) as store:
        source, log = store.partition("source", 0), store.partition("t", 0)
        source.become_leader(4)
        source.append([Record(value=b"x")])
        slice_ = source.read_slice(0)
        batch = bytearray(slice_.read())
        without = bytearray(batch)
        without[7] = 1  # the next offset
        without[12:16] = b"\xff" * 4
        log.become_leader(9)
        log.append_batches(batch, origin=AppendOrigin.RESTORED)
        log.append_batches(bytes(without), origin=AppendOrigin.RESTORED)
        written = log.read_slice(0)
        stored = written.read()
        assert stored[12:16] == b"\0\0\0\x04"
        assert stored[len(batch) + 12 : len(batch) + 16] == b"\0\0\0\x09"
        with pytest.raises(InvalidRecord, match="begin at 2 or above"):
            log.append_batches(batch, origin=AppendOrigin.RESTORED)
