"""Reading a log: from any offset, by time, as records, tables and slices; damage; readers beside writers."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from duralog.columnar.schema import RECORD_SCHEMA
from duralog.errors import CorruptRecord, Fault, OffsetOutOfRange, RecordTooLarge
from duralog.format import batches, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from duralog.storage.log.partition_log import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AppendOrigin,
    PartitionLog,
    TimestampedOffset,
)
from tests.support.storage.log_in_folder import NOW_MS, LogInFolder, numbered, values


def filled(folder: LogInFolder, *, appends: int = 10, records: int = 10, roll_every: int = 4) -> PartitionLog:
    """A log of several segments, and in each several batches."""
    log = folder.open()
    for number in range(appends):
        if number and number % roll_every == 0:
            log.roll()
        log.append(numbered(number * records, (number + 1) * records), codec=("none", "lz4", "zstd")[number % 3])
    return log


def at_positions(log: PartitionLog) -> list[tuple[int, Batch]]:
    return [
        (number, batch)
        for number, info in enumerate(log.segments)
        for batch in batches.scan(Path(info.path).read_bytes()[: info.size_bytes])
    ]


def test_reading_from_every_offset(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    assert len(log.segments) == 3
    for offset in range(101):
        found = list(log.read(offset))
        assert [record.offset for record in found] == list(range(offset, 100))
        assert values(found) == [b"%d" % number for number in range(offset, 100)]


def test_outside_of_the_log_is_refused_at_the_call(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    log.delete_records(before_offset=5)
    for offset in (-1, 0, 4, 101):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not within the log.*5 to 100"):
            log.read(offset)
        with pytest.raises(OffsetOutOfRange):
            log.read_slice(offset)
        with pytest.raises(OffsetOutOfRange):
            log.read_arrow(offset)
    with pytest.raises(OffsetOutOfRange):
        log.read_arrow(5, 101)
    assert next(log.read(5)).offset == 5


def test_from_now_on(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    now = log.end_offset
    assert list(log.read(now)) == []
    assert log.read_slice(now).size == 0
    assert log.read_slice(now).read() == b""
    log.append(numbered(100, 102))
    assert values(log.read(now)) == [b"100", b"101"]


def test_a_reader_sees_the_log_as_it_was_when_it_asked(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    reader = log.read(90)
    log.append(numbered(100, 200))
    assert len(list(reader)) == 10


def test_the_byte_limit_counts_batches_and_gives_one_at_least(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    sizes = [batch.size_bytes for _, batch in at_positions(log)]
    assert len(sizes) == 10
    for offset, first in ((0, 0), (5, 0), (39, 3)):
        for limit, expected in (
            (0, 1),
            (1, 1),
            (sizes[first], 1),
            (sum(sizes[first : first + 2]) - 1, 1),
            (sum(sizes[first : first + 2]), 2),
            (sum(sizes[first : first + 6]), 6),
            (sum(sizes), 10),
        ):
            found = list(log.read(offset, max_bytes=limit))
            end = min((first + expected) * 10, 100)
            assert [record.offset for record in found] == list(range(offset, end)), (offset, limit)


def test_a_batch_over_the_caller_s_maximum_is_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append(numbered(0, 2))
    log.append([Record(value=bytes(5000))])
    reader = log.read(0, max_bytes=10_000, max_batch_bytes=1000)
    assert values([next(reader), next(reader)]) == [b"0", b"1"]
    with pytest.raises(RecordTooLarge, match=r"a batch of 50\d\d bytes"):
        next(reader)
    assert len(list(log.read(2, max_bytes=10, max_batch_bytes=6000))) == 1
    with pytest.raises(RecordTooLarge):
        log.read_slice(2, 10, max_batch_bytes=1000)
    assert log.read_slice(2, 10, max_batch_bytes=6000).size > 5000


@pytest.mark.parametrize("before", range(6))
def test_a_batch_over_the_maximum_is_refused_wherever_it_stands(tmp_path: Path, before: int) -> None:
    """Not only where a read happens to begin with it."""
    log = LogInFolder(tmp_path).open()
    for _ in range(before):
        log.append(numbered(0, 1))
    log.append([Record(value=bytes(5000))])
    log.append(numbered(0, 1))
    reader = log.read(0, max_batch_bytes=1000)
    assert [next(reader).offset for _ in range(before)] == list(range(before))
    with pytest.raises(RecordTooLarge, match=r"a batch of 50\d\d bytes"):
        next(reader)


def test_the_error_of_an_unknown_isolation_lists_the_known_ones(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    with pytest.raises(ValueError, match="isolation is read_uncommitted or read_committed, not 'committed'"):
        log.read(0, isolation="committed")


def test_offsets_that_were_removed_continue_at_the_next_one(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    kept = [
        record_batch.encode(
            [Record(value=b"%d" % offset, timestamp_ms=NOW_MS, offset=offset) for offset in offsets],
            base_offset=offsets[0],
            last_offset=last,
        )
        for offsets, last in (((0, 3), 5), ((10, 11), 19))
    ]
    log.append_batches(kept[0], origin=AppendOrigin.AS_IS)
    log.roll()
    log.append_batches(kept[1], origin=AppendOrigin.AS_IS)
    assert log.end_offset == 20
    expected = {0: [0, 3, 10, 11], 1: [3, 10, 11], 4: [10, 11], 7: [10, 11], 11: [11], 12: [], 20: []}
    for offset, offsets in expected.items():
        assert [record.offset for record in log.read(offset)] == offsets
        assert log.read_arrow(offset)["offset"].to_pylist() == offsets
    assert [log.read_slice(offset).read() for offset in (0, 5, 6, 19, 20)] == [kept[0], kept[0], kept[1], kept[1], b""]


def test_legacy_messages_are_read_like_any_other(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    records = [Record(key=b"k", value=b"%d" % number, timestamp_ms=NOW_MS + number) for number in range(4)]
    old = b"".join(
        message_set.encode(records, magic=magic, base_offset=base, codec=codec)
        for magic, base, codec in ((0, 0, Codec.NONE), (1, 4, Codec.GZIP))
    )
    log.append_batches(old, origin=AppendOrigin.AS_IS)
    log.append(numbered(8, 9))
    found = list(log.read(2))
    assert [record.offset for record in found] == [2, 3, 4, 5, 6, 7, 8]
    assert values(log.read(6)) == [b"2", b"3", b"8"]
    assert found[0].timestamp_type is TimestampType.NONE
    assert found[0].timestamp_ms == -1
    assert found[2].timestamp_type is TimestampType.CREATE_TIME
    assert log.read_arrow(3, 6)["offset"].to_pylist() == [3, 4, 5]


# Tables


def test_a_table_has_every_record_and_the_whole_schema(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    log.append([Record(key=b"k", value=None, headers=[("h", b"x")])])
    table = log.read_arrow(start_offset=0, end_offset=None)
    assert table.schema == RECORD_SCHEMA
    assert table["offset"].to_pylist() == list(range(101))
    assert set(table["topic"].to_pylist()) == {"orders"}
    assert set(table["partition"].to_pylist()) == {3}
    assert table["value"].to_pylist()[:100] == [b"%d" % number for number in range(100)]
    assert table.slice(100).to_pylist()[0]["headers"] == [{"key": "h", "value": b"x"}]


@pytest.mark.parametrize(
    ("start", "end"), [(0, 100), (3, 7), (9, 10), (10, 20), (15, 77), (39, 41), (50, 50), (100, 100)]
)
def test_a_part_of_the_log_as_a_table(tmp_path: Path, start: int, end: int) -> None:
    log = filled(LogInFolder(tmp_path))
    table = log.read_arrow(start, end, columns=["value", "offset"])
    assert table.column_names == ["offset", "value"]
    assert table["offset"].to_pylist() == list(range(start, end))
    assert table["value"].to_pylist() == [b"%d" % number for number in range(start, end)]


def test_an_empty_log_is_an_empty_table(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    assert log.read_arrow() == RECORD_SCHEMA.empty_table()
    assert log.read_arrow(columns=["key"]).schema == pa.schema([RECORD_SCHEMA.field("key")])
    with pytest.raises(ValueError, match="no such column: keys"):
        log.read_arrow(columns=["keys"])


def test_more_than_a_piece_of_the_file(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    for first in range(0, 6000, 1000):
        log.append([Record(value=b"%d" % number + bytes(2000)) for number in range(first, first + 1000)])
    assert log.size_bytes > 8 << 20
    assert log.read_arrow(columns=["offset"])["offset"].to_pylist() == list(range(6000))
    assert [record.offset for record in log.read(10)] == list(range(10, 6000))


# Slices


def test_a_slice_starts_at_the_batch_and_never_leaves_its_segment(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    placed = at_positions(log)
    files = [Path(info.path).read_bytes()[: info.size_bytes] for info in log.segments]
    for offset in range(100):
        segment, batch = placed[offset // 10]
        for max_bytes in (0, batch.size_bytes, batch.size_bytes + 10, 1 << 20):
            found = log.read_slice(offset, max_bytes)
            rest = files[segment][batch.position :]
            assert found.read() == rest[: max(max_bytes, batch.size_bytes)]
            assert found.position == batch.position
            assert found.aborted is None


def test_without_one_batch_at_least_a_slice_may_be_empty(tmp_path: Path) -> None:
    log = filled(LogInFolder(tmp_path))
    size = at_positions(log)[0][1].size_bytes
    assert log.read_slice(0, size - 1, min_one=False).size == 0
    assert log.read_slice(0, size, min_one=False).size == size


def test_a_reader_comes_to_the_end_of_a_log_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    filled(folder).close()
    log = folder.open()
    before = len(os.listdir("/proc/self/fd"))
    reader = log.read(0)
    first = next(reader)
    log.delete_segments([info.base_offset for info in log.segments], "a test")
    folder.catch_up()
    assert [name for name in folder.names if name.endswith((".log", ".deleted"))] == ["00000000000000000100.log"]
    assert values([first, *reader]) == [b"%d" % number for number in range(100)]
    del reader
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_slice_stays_readable_when_its_segment_is_deleted(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = filled(folder)
    found = log.read_slice(0)
    records = log.read(0)
    next(records)
    expected = Path(log.segments[0].path).read_bytes()
    log.delete_segments([0, 40], "test")
    folder.catch_up()
    assert folder.names == sorted(path.name for path in tmp_path.iterdir())
    assert not [name for name in folder.names if name.startswith("0" * 20 + ".")]
    assert found.read() == expected
    assert len(list(records)) == 99


# By time


def with_epoch(found: TimestampedOffset | None) -> tuple[int, int, int] | None:
    return None if found is None else (*found, found.leader_epoch)


def test_the_first_record_at_or_after_a_time(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, index_interval_bytes=1).open()
    times = [10, 20, 20, 15, 40, 30, 50, 5, 60]
    for number, time in enumerate(times):
        if number in (3, 6):
            log.roll()
        log.append([Record(value=b"", timestamp_ms=time), Record(value=b"", timestamp_ms=time + 1)])
    spread = [time + step for time in times for step in (0, 1)]
    for wanted in range(70):
        first = next((offset for offset, time in enumerate(spread) if time >= wanted), None)
        expected = None if first is None else (first, spread[first], 0)
        assert with_epoch(log.offset_for_timestamp(wanted)) == expected, wanted


def test_records_below_the_start_are_not_found(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append([Record(value=b"", timestamp_ms=time) for time in (10, 90, 20, 30)])
    log.roll()
    log.append([Record(value=b"", timestamp_ms=time) for time in (60, 70)])
    log.delete_records(before_offset=2)
    assert with_epoch(log.offset_for_timestamp(5)) == (2, 20, 0)
    assert with_epoch(log.offset_for_timestamp(40)) == (4, 60, 0)
    assert log.offset_for_timestamp(80) is None


def test_special_times(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    assert with_epoch(log.offset_for_timestamp(EARLIEST)) == (0, -1, -1)
    assert with_epoch(log.offset_for_timestamp(LATEST)) == (0, -1, -1)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    log.append([Record(value=b"", timestamp_ms=time) for time in (10, 90, 20, 90)])
    log.roll()
    log.append([Record(value=b"", timestamp_ms=time) for time in (90, 70)])
    log.delete_records(before_offset=1)
    assert with_epoch(log.offset_for_timestamp(EARLIEST)) == (1, -1, 0)
    assert with_epoch(log.offset_for_timestamp(LATEST)) == (6, -1, 0)
    assert with_epoch(log.offset_for_timestamp(MAX_TIMESTAMP)) == (1, 90, 0)
    with pytest.raises(ValueError, match="-4 is neither a timestamp"):
        log.offset_for_timestamp(-4)


# Damage


def damaged(tmp_path: Path, change: Any) -> PartitionLog:
    """A log of ten batches, in which something has happened to the bytes of the sixth since it was opened."""
    log = LogInFolder(tmp_path).open()
    for number in range(10):
        log.append(numbered(number * 10, number * 10 + 10))
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    change(data, at_positions(log)[5][1])
    path.write_bytes(data)
    return log


def flip_value(data: bytearray, batch: Batch) -> None:
    data[batch.position + batch.size_bytes - 2] ^= 0xFF


def shrink_length(data: bytearray, batch: Batch) -> None:
    data[batch.position + 8 : batch.position + 12] = (3).to_bytes(4, "big")


def grow_length(data: bytearray, batch: Batch) -> None:
    data[batch.position + 8 : batch.position + 12] = (1 << 30).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (flip_value, Fault.CRC_MISMATCH),
        (shrink_length, Fault.BATCH_LENGTH),
        (grow_length, Fault.PARTIAL_BATCH),
    ],
)
def test_damage_is_an_error_after_the_records_before_it(tmp_path: Path, change: Any, fault: Fault) -> None:
    log = damaged(tmp_path, change)
    reader = log.read(0)
    assert values([next(reader) for _ in range(50)]) == [b"%d" % number for number in range(50)]
    with pytest.raises(CorruptRecord) as refused:
        next(reader)
    assert refused.value.fault is fault
    assert refused.value.file is not None
    assert refused.value.file.endswith("00000000000000000000.log")
    with pytest.raises(CorruptRecord):
        log.read_arrow(0)


def test_who_does_not_reach_the_damage_does_not_see_it(tmp_path: Path) -> None:
    log = damaged(tmp_path, flip_value)
    assert log.read_arrow(0, 50).num_rows == 50
    assert values(log.read(60)) == [b"%d" % number for number in range(60, 100)]
    assert len(list(log.read(0, max_bytes=1))) == 10


# Threads


def test_readers_of_a_log_being_written_see_no_gaps(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, internal_segment_bytes=2000)
    log = folder.open()
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            is_last = False
            while not is_last:
                is_last = done.is_set()
                start = log.start_offset
                try:
                    found = [record.offset for record in log.read(start)]
                    table = log.read_arrow(start, columns=["offset"])
                except OffsetOutOfRange:
                    continue
                assert found == list(range(start, start + len(found)))
                assert table["offset"].to_pylist() == list(range(start, start + len(table)))
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for number in range(150):
            log.append(numbered(number * 10, number * 10 + 10))
            if len(log.segments) > 5:
                log.delete_segments([log.segments[0].base_offset], "test")
                folder.catch_up()
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not failures
    assert log.end_offset == 1500
