"""One segment: what is appended is found again, by offset and by time, whatever happens to its indexes."""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.errors import CorruptRecord, Fault, InvalidRecord, RecordTooLarge, StorageError
from duralog.format import batches, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.filenames import FileKind, FileState
from duralog.format.index_entries import (
    AbortedTransaction,
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    index_entries,
)
from duralog.format.record import Record, TimestampType
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.batch_extents import extents
from duralog.storage.segment.segment import Segment, SegmentOptions
from duralog.storage.segment.segment_files import SegmentFiles

FS = LocalFileSystem()
BASE = 1000
SMALL = SegmentOptions(index_interval_bytes=200, index_max_bytes=4096)
NOW = 1_700_000_000_000


def v2(base_offset: int, timestamps: list[int], *, value_bytes: int = 20, **fields: Any) -> bytes:
    records = [Record(key=b"k", value=bytes(value_bytes), timestamp_ms=timestamp) for timestamp in timestamps]
    return record_batch.encode(records, base_offset=base_offset, **fields)


def rows_of(data: bytes) -> np.ndarray[Any, Any]:
    [piece] = read_pieces(MemorySource(data))
    return piece.batches


def append(segment: Segment, *parts: bytes) -> int:
    return segment.append(parts, extents(rows_of(b"".join(parts))))


def create(folder: Path, options: SegmentOptions = SMALL) -> Segment:
    return Segment.create(FS, str(folder), BASE, created_ms=NOW, options=options)


def reopen(segment: Segment, *, read_only: bool = False) -> Segment:
    folder, name = os.path.split(segment.path(FileKind.LOG))
    [entry] = [entry for entry in FS.list(folder) if entry.name == name]
    files = SegmentFiles(FS, folder, BASE, read_only=read_only)
    return Segment(files, size_bytes=entry.size, created_ms=NOW, options=segment.options)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def names(folder: Path) -> set[str]:
    return {path.name.removeprefix("00000000000000001000") for path in folder.iterdir()}


@dataclass
class Reference:
    """A log as a plain list of batches, with the answers that a segment must give."""

    data: bytes
    batches: list[Batch] = field(init=False)

    def __post_init__(self) -> None:
        self.batches = list(batches.scan(self.data))

    def find(self, offset: int) -> tuple[int, int, int] | None:
        for batch in self.batches:
            if batch.last_offset >= offset:
                return batch.position, batch.size_bytes, batch.last_offset
        return None

    def find_time(self, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
        for batch in self.batches:
            for record in batches.decode_records(self.data, batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return record.offset, record.timestamp_ms
        return None

    def indexes(self, interval_bytes: int) -> tuple[bytes, bytes]:
        entries = list(index_entries(self.batches, interval_bytes=interval_bytes))
        return (
            encode_offset_index([entry for entry in entries if isinstance(entry, OffsetIndexEntry)], BASE),
            encode_time_index([entry for entry in entries if isinstance(entry, TimeIndexEntry)], BASE),
        )


def check_lookups(segment: Segment, reference: Reference, offsets: range, times: range) -> None:
    for offset in offsets:
        assert segment.find_batch(offset) == reference.find(offset)
    for timestamp in times:
        for start in (0, offsets[len(offsets) // 2]):
            found = segment.find_offset_by_timestamp(timestamp, start)
            assert found == reference.find_time(timestamp, start)


batch_shapes = st.lists(st.lists(st.integers(-1, 30), min_size=1, max_size=4), min_size=1, max_size=25)


@pytest.mark.slow
@settings(max_examples=60)
@given(shapes=batch_shapes, seed=st.integers(0, 2**32), gap=st.integers(0, 2))
def test_appended_batches_are_found_and_indexed_by_the_rule(
    tmp_path_factory: pytest.TempPathFactory, shapes: list[list[int]], seed: int, gap: int
) -> None:
    """Also with timestamps out of order, batches without any, and gaps between offsets."""
    folder = tmp_path_factory.mktemp("segment")
    choose = random.Random(seed)
    segment = create(folder)
    parts, offset = [], BASE
    for timestamps in shapes:
        offset += choose.randint(0, gap)
        codec = choose.choice([Codec.NONE, Codec.LZ4])
        parts.append(v2(offset, timestamps, value_bytes=choose.randint(0, 200), codec=codec))
        offset += len(timestamps)
    waiting = list(parts)
    while waiting:
        count = choose.randint(1, 4)
        append(segment, *waiting[:count])
        waiting = waiting[count:]
    reference = Reference(b"".join(parts))
    check_lookups(segment, reference, range(BASE, offset + 1), range(-1, 32))
    assert segment.next_offset() == offset
    assert segment.max_timestamp_ms == max(max(timestamps) for timestamps in shapes)
    segment.close()
    assert Path(segment.path(FileKind.LOG)).read_bytes() == reference.data
    on_disk = tuple(Path(segment.path(kind)).read_bytes() for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX))
    assert on_disk == reference.indexes(SMALL.index_interval_bytes)

    again = reopen(segment)
    check_lookups(again, reference, range(BASE, offset + 1), range(-1, 32))
    assert again.next_offset() == offset
    assert again.max_timestamp_ms == segment.max_timestamp_ms
    recovered = again.recover()
    assert (recovered.valid_bytes, recovered.cut_bytes, recovered.reason) == (len(reference.data), 0, None)
    assert (again.offset_index.as_bytes(), again.time_index.as_bytes()) == on_disk


def test_messages_of_the_old_formats_are_found(tmp_path: Path) -> None:
    parts, offset = [], BASE
    for n in range(40):
        records = [Record(key=b"k", value=bytes(n), timestamp_ms=(n * 7) % 60 + place) for place in range(3)]
        codec = [Codec.NONE, Codec.GZIP, Codec.LZ4][n % 3]
        kind = TimestampType.LOG_APPEND_TIME if n % 4 == 3 else TimestampType.CREATE_TIME
        parts.append(
            message_set.encode(
                records, magic=n % 2, base_offset=offset, codec=codec, timestamp_type=kind, append_time_ms=n
            )
        )
        offset += 3
    segment = create(tmp_path)
    for part in parts:
        append(segment, part)
    check_lookups(segment, Reference(b"".join(parts)), range(BASE, offset + 1), range(-1, 70, 3))


def test_the_index_files_come_with_the_first_append_at_full_size(tmp_path: Path) -> None:
    segment = create(tmp_path)
    assert names(tmp_path) == {".log"}
    assert segment.read(BASE, 100) is None
    assert segment.find_offset_by_timestamp(0) is None
    assert names(tmp_path) == {".log"}
    append(segment, v2(BASE, [1]))
    assert names(tmp_path) == {".log", ".index", ".timeindex"}
    assert os.path.getsize(segment.path(FileKind.OFFSET_INDEX)) == 4096
    assert os.path.getsize(segment.path(FileKind.TIME_INDEX)) == 4092
    segment.on_roll()
    assert os.path.getsize(segment.path(FileKind.OFFSET_INDEX)) == 0
    assert os.path.getsize(segment.path(FileKind.TIME_INDEX)) == 12
    assert segment.read(BASE, 1000) is not None


def test_an_empty_segment_has_its_index_files_once_it_is_closed(tmp_path: Path) -> None:
    segment = create(tmp_path)
    segment.close()
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        "00000000000000001000.log": 0,
        "00000000000000001000.index": 0,
        "00000000000000001000.timeindex": 0,
    }


def test_opening_touches_no_file_and_closing_changes_none(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(20)))
    segment.close()
    before = contents(tmp_path)
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    again = reopen(segment)
    assert again.max_timestamp_ms == 19
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert again.next_offset() == BASE + 20
    again.close()
    assert contents(tmp_path) == before


def test_a_new_segment_takes_the_place_of_leftover_indexes_but_of_no_log(tmp_path: Path) -> None:
    (tmp_path / "00000000000000001000.index").write_bytes(b"x" * 16)
    (tmp_path / "00000000000000001000.txnindex").write_bytes(b"x" * 34)
    create(tmp_path).close()
    assert names(tmp_path) == {".log", ".index", ".timeindex"}
    (tmp_path / "00000000000000001000.log").write_bytes(b"x")
    with pytest.raises(StorageError, match="a file with 1 bytes exists already"):
        create(tmp_path)


def test_slices(tmp_path: Path) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + 2 * n, [n, n], value_bytes=100) for n in range(10)]
    append(segment, *parts)
    size = len(parts[0])
    data = b"".join(parts)

    whole = segment.read(BASE, 1 << 20)
    assert whole is not None
    assert (whole.position, whole.size, whole.first_batch_bytes) == (0, len(data), size)
    assert whole.read() == data
    assert whole.file.fileno() > 0

    inside = segment.read(BASE + 7, size + 10)  # Starts with the batch that holds the offset, ends inside the next.
    assert inside is not None
    assert inside.read() == data[3 * size : 4 * size + 10]

    limited = segment.read(BASE + 7, 1 << 20, max_position=5 * size)
    assert limited is not None
    assert limited.read() == data[3 * size : 5 * size]

    behind = segment.read(BASE + 7, 1 << 20, max_position=2 * size)
    assert behind is not None
    assert behind.size == 0

    cut = segment.read(BASE, 10)
    assert cut is not None
    assert (cut.read(), cut.first_batch_bytes) == (data[:10], size)

    one = segment.read(BASE, 10, min_one=True)
    assert one is not None
    assert one.read() == parts[0]
    assert segment.read(BASE, 10, min_one=True, max_batch_bytes=size) == one
    with pytest.raises(RecordTooLarge, match=f"position 0: a batch of {size} bytes, but the limit for one is 50"):
        segment.read(BASE, 10, min_one=True, max_batch_bytes=50)
    assert segment.read(BASE + 20, 10, min_one=True) is None


def test_what_a_reader_holds_outlives_the_segment(tmp_path: Path) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + n, [n]) for n in range(30)]
    append(segment, *parts)
    held = segment.read(BASE + 3, 1 << 20)
    segment.on_roll()
    segment.rename(FileState.DELETED)
    assert names(tmp_path) == {".log.deleted", ".index.deleted", ".timeindex.deleted"}
    after = segment.read(BASE + 3, 1 << 20)
    segment.delete()
    assert names(tmp_path) == set()
    assert segment.read(BASE + 3, 1 << 20) == after
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    del segment
    assert held is not None
    assert after is not None
    assert held.read() == after.read() == b"".join(parts[3:])
    del held, after
    # The last reader is gone: so are the files, without the help of the garbage collector.
    assert len(os.listdir("/proc/self/fd")) < descriptors


def test_a_segment_can_be_read_first_after_it_was_renamed(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(30)))
    segment.transaction_index.append(
        AbortedTransaction(producer_id=1, first_offset=BASE, last_offset=BASE + 5, last_stable_offset=BASE + 6)
    )
    segment.close()
    again = reopen(segment)
    again.rename(FileState.SWAP)
    assert names(tmp_path) == {".log.swap", ".index.swap", ".timeindex.swap", ".txnindex.swap"}
    assert again.find_batch(BASE + 25) is not None
    assert len(again.transaction_index.entries) == 1
    again.rename(FileState.LIVE)
    assert again.find_offset_by_timestamp(12) == (BASE + 12, 12)


def test_reading_a_deleted_segment_leaves_no_files_behind(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(30)))
    segment.close()
    again = reopen(segment)
    held = again.file
    again.delete()
    assert again.find_batch(BASE + 25) is not None  # By an index that is built now, in memory.
    assert again.max_timestamp_ms == 29
    assert held.size == again.size_bytes
    assert names(tmp_path) == set()


def test_who_holds_a_deleted_segment_reads_what_was_not_open_yet(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(30)))
    aborted = AbortedTransaction(producer_id=1, first_offset=BASE, last_offset=BASE + 5, last_stable_offset=BASE + 6)
    segment.transaction_index.append(aborted)
    segment.close()
    again = reopen(segment)
    again.rename(FileState.DELETED)
    again.delete()
    assert names(tmp_path) == set()
    assert again.find_offset_by_timestamp(12) == (BASE + 12, 12)
    assert again.transaction_index.overlapping(BASE, BASE + 1).transactions == [aborted]


def test_a_closed_segment_is_not_opened_again(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, v2(BASE, [1]))
    held = segment.file
    segment.close()
    assert held.read(0, held.size) == v2(BASE, [1])
    with pytest.raises(StorageError, match="the segment was closed"):
        segment.read(BASE, 10)


def test_an_index_that_is_first_asked_for_after_closing_is_not_written_to(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, v2(BASE, [1]))
    segment.close()
    again = reopen(segment)
    again.close()
    with pytest.raises(StorageError, match="opened for reading"):
        again.offset_index.resize()


def test_offsets_must_rise(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, v2(BASE, [1, 2]))
    with pytest.raises(InvalidRecord, match="offset 1001 does not follow 1001"):
        append(segment, v2(BASE + 1, [1]))
    assert segment.next_offset() == BASE + 2


def test_what_fits_in_32_bits(tmp_path: Path) -> None:
    segment = create(tmp_path)
    assert segment.fits(BASE + 2**31 - 1, 100)
    assert not segment.fits(BASE + 2**31, 100)
    assert not segment.fits(BASE - 1, 100)
    assert segment.fits(BASE, 2**31 - 1)
    assert not segment.fits(BASE, 2**31)
    append(segment, v2(BASE + 2**31 - 1, [5]))
    assert segment.next_offset() == BASE + 2**31
    assert segment.find_batch(BASE + 2**31 - 1) is not None


def test_a_full_index_asks_for_a_roll_and_is_no_reason_to_lose_a_batch(tmp_path: Path) -> None:
    segment = create(tmp_path, SegmentOptions(index_interval_bytes=0, index_max_bytes=36))
    for n in range(3):
        assert not segment.offset_index.is_full
        assert not segment.time_index.is_full
        append(segment, v2(BASE + n, [5]))
    assert not segment.offset_index.is_full
    assert not segment.time_index.is_full
    append(segment, *(v2(BASE + n, [n]) for n in range(3, 10)))
    assert segment.offset_index.is_full
    segment.close()
    assert os.path.getsize(segment.path(FileKind.OFFSET_INDEX)) == 32
    check_lookups(
        reopen(segment), Reference(Path(segment.path(FileKind.LOG)).read_bytes()), range(BASE, BASE + 11), range(12)
    )


def test_a_failed_append_leaves_the_segment_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(10)))
    state = {**vars(segment)}
    entries = segment.offset_index.as_bytes(), segment.time_index.as_bytes()
    data = Path(segment.path(FileKind.LOG)).read_bytes()
    write = os.pwrite

    def fill(descriptor: int, buffer: bytes, position: int) -> int:
        write(descriptor, buffer[: len(buffer) // 2], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", fill)
        with pytest.raises(StorageError, match="cannot append to: No space left"):
            append(segment, v2(BASE + 10, [99]))
    assert vars(segment) == state
    assert (segment.offset_index.as_bytes(), segment.time_index.as_bytes()) == entries
    assert Path(segment.path(FileKind.LOG)).read_bytes() == data
    append(segment, v2(BASE + 10, [99]))
    segment.close()
    assert reopen(segment).recover().reason is None


def test_no_room_for_the_indexes_refuses_the_first_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = create(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StorageError, match="cannot reserve room in"):
            append(segment, v2(BASE, [1]))
    assert (segment.size_bytes, os.path.getsize(segment.path(FileKind.LOG))) == (0, 0)
    append(segment, v2(BASE, [1]))
    assert segment.next_offset() == BASE + 1


@pytest.mark.parametrize("cut", [BASE, BASE + 1, BASE + 31, BASE + 32, BASE + 59, BASE + 60, BASE + 90])
def test_truncation_takes_the_batch_that_holds_the_offset(tmp_path: Path, cut: int) -> None:
    parts = [v2(BASE + 3 * n, [n, 50 - n, n]) for n in range(20)]
    segment = create(tmp_path)
    append(segment, *parts)
    segment.transaction_index.append(
        AbortedTransaction(producer_id=1, first_offset=BASE, last_offset=BASE + 32, last_stable_offset=BASE + 33)
    )
    kept = [part for n, part in enumerate(parts) if BASE + 3 * n + 2 < cut]
    assert segment.truncate_to(cut) == sum(map(len, parts[len(kept) :]))
    reference = Reference(b"".join(kept))
    assert segment.size_bytes == len(reference.data)
    assert segment.next_offset() == BASE + 3 * len(kept)
    assert segment.max_timestamp_ms == max([max(n, 50 - n) for n in range(len(kept))], default=-1)
    assert len(segment.transaction_index.entries) == (cut > BASE + 32)
    check_lookups(segment, reference, range(BASE, BASE + 62), range(-1, 52, 5))

    more = v2(BASE + 200, [70])
    append(segment, more)
    segment.close()
    again = reopen(segment)
    check_lookups(again, Reference(reference.data + more), range(BASE, BASE + 202, 7), range(-1, 72, 5))
    assert again.recover().reason is None


@pytest.mark.parametrize("is_reopened", [False, True])
def test_the_largest_timestamp_is_in_the_index_of_a_truncated_segment_too(tmp_path: Path, is_reopened: bool) -> None:
    segment = create(tmp_path)
    append(segment, *(v2(BASE + n, [n]) for n in range(20)))
    if is_reopened:
        segment.close()
        segment = reopen(segment)
    segment.truncate_to(BASE + 18)
    segment.close()
    again = reopen(segment)
    assert again.max_timestamp_ms == 17
    assert again.time_index.last == TimeIndexEntry(17, BASE + 17)


def test_the_times_that_rules_ask_for(tmp_path: Path) -> None:
    segment = create(tmp_path)
    assert segment.first_timestamp_ms is None
    assert segment.max_timestamp_ms == -1
    segment.set_modified_ms(12345)
    assert segment.largest_timestamp_ms == segment.modified_ms == 12345
    append(segment, message_set.encode([Record(value=b"x")], magic=0, base_offset=BASE))
    segment.set_modified_ms(23456)
    assert (segment.first_timestamp_ms, segment.max_timestamp_ms, segment.largest_timestamp_ms) == (-1, -1, 23456)
    append(segment, v2(BASE + 1, [500, 700]), v2(BASE + 3, [600]))
    assert (segment.first_timestamp_ms, segment.max_timestamp_ms, segment.largest_timestamp_ms) == (-1, 700, 700)
    segment.close()
    assert reopen(segment).largest_timestamp_ms == 700
    segment.delete()
    segment = create(tmp_path)
    append(segment, v2(BASE, [500, 700]), v2(BASE + 2, [900]))
    assert segment.first_timestamp_ms == 700


def test_a_preallocated_log_is_as_long_as_its_contents_once_it_is_rolled(tmp_path: Path) -> None:
    options = SegmentOptions(index_interval_bytes=200, index_max_bytes=4096, segment_bytes=8192, preallocate=True)
    segment = create(tmp_path, options)
    parts = [v2(BASE + n, [n]) for n in range(10)]
    append(segment, *parts[:5])
    append(segment, *parts[5:])
    log = Path(segment.path(FileKind.LOG))
    assert log.read_bytes() == b"".join(parts) + bytes(8192 - len(b"".join(parts)))
    assert segment.size_bytes == len(b"".join(parts))

    # A crash: the end is found by recovery, and nothing but zeros is cut.
    crashed = reopen(segment)
    with pytest.raises(CorruptRecord, match="length is too small"):
        crashed.next_offset()
    recovered = crashed.recover()
    assert recovered.is_blank
    assert (recovered.valid_bytes, recovered.next_offset) == (len(b"".join(parts)), BASE + 10)
    assert recovered.cut_bytes == 8192 - recovered.valid_bytes

    # Somebody else who only reads sees the batches.
    reader = reopen(segment, read_only=True)
    assert reader.next_offset() == BASE + 10
    assert reader.size_bytes == recovered.valid_bytes

    segment.on_roll()
    assert log.read_bytes() == b"".join(parts)
    empty = Segment.create(FS, str(tmp_path), 5000, created_ms=NOW, options=options)
    assert os.path.getsize(empty.path(FileKind.LOG)) == 8192
    empty.close()
    assert os.path.getsize(empty.path(FileKind.LOG)) == 0


def test_no_room_for_a_preallocated_log_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SegmentOptions(segment_bytes=8192, preallocate=True)

    def refuse(descriptor: int, _: int, size: int) -> None:
        os.ftruncate(descriptor, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(StorageError, match="cannot allocate room in"):
            create(tmp_path, options)
    assert names(tmp_path) == set()
    append(create(tmp_path, options), v2(BASE, [1]))


def test_recovery_returns_where_the_valid_part_ends_and_leaves_the_log_alone(tmp_path: Path) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + n, [n]) for n in range(20)]
    append(segment, *parts)
    segment.transaction_index.append(
        AbortedTransaction(producer_id=1, first_offset=BASE, last_offset=BASE + 5, last_stable_offset=BASE + 6)
    )
    segment.close()
    log = Path(segment.path(FileKind.LOG))
    good = b"".join(parts[:15])
    damaged = bytearray(log.read_bytes())
    damaged[len(good) + 70] ^= 0xFF
    log.write_bytes(damaged)
    again = reopen(segment)
    offsets: list[int] = []

    def visit(piece: Any) -> None:
        offsets.extend(piece.batches["base_offset"].tolist())
        again.transaction_index.append(
            AbortedTransaction(producer_id=2, first_offset=BASE, last_offset=BASE + 7, last_stable_offset=BASE + 8)
        )

    recovered = again.recover(visit)
    assert offsets == list(range(BASE, BASE + 15))
    assert [entry.producer_id for entry in again.transaction_index.entries] == [2]
    assert (recovered.valid_bytes, recovered.cut_bytes) == (len(good), len(damaged) - len(good))
    assert (recovered.next_offset, recovered.is_blank, recovered.is_overflow) == (BASE + 15, False, False)
    assert recovered.reason is not None
    assert (recovered.reason.fault, recovered.reason.position) == (Fault.CRC_MISMATCH, len(good))
    assert log.read_bytes() == damaged

    again.cut(recovered.valid_bytes)
    assert log.read_bytes() == good
    assert (again.offset_index.as_bytes(), again.time_index.as_bytes()) == Reference(good).indexes(200)
    assert again.next_offset() == BASE + 15
    append(again, v2(BASE + 15, [99]))
    again.close()
    assert reopen(again).recover().reason is None


def test_a_log_that_ends_inside_a_batch_must_be_recovered_before_it_is_written_to(tmp_path: Path) -> None:
    segment = create(tmp_path)
    append(segment, v2(BASE, [1]), v2(BASE + 1, [2]))
    segment.close()
    log = Path(segment.path(FileKind.LOG))
    log.write_bytes(log.read_bytes()[:-1])
    again = reopen(segment)
    with pytest.raises(CorruptRecord, match="ends inside a batch") as caught:
        append(again, v2(BASE + 2, [3]))
    assert caught.value.position == len(v2(BASE, [1]))
    again.cut(again.recover().valid_bytes)
    append(again, v2(BASE + 1, [3]))
    assert again.next_offset() == BASE + 2


WRONG_INDEX = {
    "leads into a batch": [(BASE + 5, 333), (BASE + 9, 777)],
    "leads too far": [(BASE + 2, 1500)],
    "leads behind the end": [(BASE + 2, 1 << 20)],
    "leads to another batch": [(BASE + 3, 110 * 9)],
}


@pytest.mark.parametrize("wrong", WRONG_INDEX)
def test_a_wrong_index_costs_time_and_gives_no_wrong_answer(tmp_path: Path, wrong: str) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + n, [n]) for n in range(20)]
    append(segment, *parts)
    segment.close()
    entries = [OffsetIndexEntry(*entry) for entry in WRONG_INDEX[wrong]]
    Path(segment.path(FileKind.OFFSET_INDEX)).write_bytes(encode_offset_index(entries, BASE))
    reference = Reference(b"".join(parts))
    for read_only in (False, True):
        again = reopen(segment, read_only=read_only)
        assert again.next_offset() == BASE + 20
        check_lookups(again, reference, range(BASE, BASE + 22), range(-1, 21))


def test_an_index_of_an_older_kafka_names_the_last_offset_of_a_whole_append(tmp_path: Path) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + n, [n]) for n in range(20)]
    append(segment, *parts)
    segment.close()
    size = len(parts[0])
    entries = [OffsetIndexEntry(BASE + 9, 5 * size), OffsetIndexEntry(BASE + 14, 10 * size)]
    Path(segment.path(FileKind.OFFSET_INDEX)).write_bytes(encode_offset_index(entries, BASE))
    again = reopen(segment)
    assert again.next_offset() == BASE + 20
    check_lookups(again, Reference(b"".join(parts)), range(BASE, BASE + 22), range(-1, 21))


@pytest.mark.parametrize("tail", [b"", v2(BASE + 20, [99])[:-3], bytes(500), v2(BASE + 20, [99])[:65] + bytes(300)])
@pytest.mark.parametrize("with_indexes", [True, False])
def test_reading_the_segment_of_another_process_changes_nothing(
    tmp_path: Path, tail: bytes, with_indexes: bool
) -> None:
    segment = create(tmp_path)
    parts = [v2(BASE + n, [n]) for n in range(20)]
    append(segment, *parts)
    segment.flush()  # Not closed: its owner is at work, and the indexes have zeros at their end.
    with open(segment.path(FileKind.LOG), "ab") as log:
        log.write(tail)
    if not with_indexes:
        os.remove(segment.path(FileKind.OFFSET_INDEX))
        os.remove(segment.path(FileKind.TIME_INDEX))
    before = contents(tmp_path)
    reader = reopen(segment, read_only=True)
    assert reader.next_offset() == BASE + 20
    assert reader.size_bytes == len(b"".join(parts))
    assert reader.max_timestamp_ms == 19
    check_lookups(reader, Reference(b"".join(parts)), range(BASE, BASE + 22), range(-1, 21))
    assert [len(piece.batches) for piece in reader.batches_from(0)] == [20]
    for write in (lambda: append(reader, parts[0]), lambda: reader.truncate_to(0), reader.resize_indexes):
        with pytest.raises(StorageError, match="opened for reading"):
            write()
    recovered = reader.recover()
    assert recovered.valid_bytes == len(b"".join(parts))
    reader.cut(len(parts[0]))
    assert reader.next_offset() == BASE + 1
    reader.on_roll()
    reader.flush()
    reader.close()
    assert contents(tmp_path) == before


def test_flushing_syncs_what_was_written_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    segment = create(tmp_path)
    append(segment, v2(BASE, [1]))
    segment.flush()
    assert synced == [segment.file.fileno()]
    segment.flush()
    assert len(synced) == 1
    segment.on_roll()
    segment.flush()
    assert len(synced) == 4  # The log, which may have been cut, and the two indexes, which were trimmed.


def test_a_sync_that_fails_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = create(tmp_path)
    append(segment, v2(BASE, [1]))

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="cannot sync: broken"):
            segment.flush()
        with pytest.raises(StorageError):
            segment.flush()
    segment.flush()


def test_readers_see_whole_batches_while_one_appends(tmp_path: Path) -> None:
    segment = create(tmp_path, SegmentOptions(index_interval_bytes=200, index_max_bytes=1 << 20))
    append(segment, v2(BASE, [0]))
    done = threading.Event()
    wrong: list[object] = []

    def read(seed: int) -> None:
        choose = random.Random(seed)
        while not done.is_set():
            end = segment.size_bytes
            offset = choose.randrange(BASE, segment.next_offset())
            found = segment.read(offset, 1 << 20, max_position=end)
            if found is None or found.size == 0:
                continue
            [first, *_] = batches.scan(found.read())
            if not first.base_offset <= offset <= first.last_offset or not first.crc_ok:
                wrong.append((offset, first))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    for n in range(1, 1500):
        append(segment, v2(BASE + 2 * n - 1, [n, n]))
    segment.on_roll()
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_the_time_of_a_file_that_is_renamed_meanwhile_is_found(tmp_path: Path) -> None:
    """Of a segment without timestamps: its file has one of two names at any moment."""
    segment = create(tmp_path)
    append(segment, v2(BASE, [-1]))
    stopped = threading.Event()
    failures: list[StorageError] = []

    def ask() -> None:
        while not stopped.is_set() and not failures:
            try:
                assert segment.largest_timestamp_ms > 0
            except StorageError as error:
                failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for state in [FileState.DELETED, FileState.LIVE] * 200:
        segment.rename(state)
    stopped.set()
    asking.join()
    assert failures == []
