"""A segment: one `.log` file of batches, its two sparse indexes and its index of aborted transactions.

Opening a segment touches no file: name and size come from a listing of the folder, and each file is opened when it is
first used. Only the last segment of a log is written to.

What must always be true:
- One thread writes at a time, under the lock of its log. Readers take no lock: the size grows after the bytes are
  written, and what a reader holds (`LogSlice`, a piece, an index table) stays valid when the segment is rolled, renamed
  or deleted.
- A failed append changes nothing: room in the indexes is made sure of before the batch is written, and a batch that was
  written in part is cut off again.

If the machine dies, the log may end in a broken batch and the indexes may hold anything: `recover` tells where the
valid part ends and builds the indexes of it again. It does not cut the log: that is for the caller, who may want to
keep the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any

from numpy.typing import NDArray

from duralog.columnar.pieces import Piece, read_pieces
from duralog.errors import CorruptRecord, Fault, InvalidRecord, RecordTooLarge, StorageError
from duralog.format.filenames import FileKind, FileState
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.varint import Bytes
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.batch_walk import walk
from duralog.storage.file_system import File, FileSystem
from duralog.storage.index_builder import BuiltIndexes, Visit, build_indexes
from duralog.storage.lookup import (
    FoundBatch,
    LogSlice,
    TimestampedOffset,
    find_batch,
    find_record_by_time,
    find_tail,
)
from duralog.storage.segment_files import DEFAULT_OPTIONS, SegmentFiles, SegmentOptions
from duralog.storage.sparse_index import OffsetIndex, TimeIndex
from duralog.storage.transaction_index import TransactionIndex

__all__ = ["FoundBatch", "LogSlice", "RecoveredSegment", "Segment", "SegmentOptions", "TimestampedOffset"]

_INT32_MAX = 2**31 - 1
_BLANK_BYTES = 1 << 20
_RESERVED_ENTRIES = 1024
"""Room in the indexes is made for so many batches at once."""

_FIELDS = BATCH_DTYPE.names or ()
_POSITION, _LAST_OFFSET, _MAX_TIMESTAMP, _SIZE = map(
    _FIELDS.index, ("position", "last_offset", "max_timestamp", "size")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """Where the valid part of a segment ends."""

    valid_bytes: int
    cut_bytes: int
    """How many bytes follow."""
    reason: CorruptRecord | None
    """What is wrong with them; None if there are none."""
    next_offset: int
    is_blank: bool
    """They are all zeros: room that was allocated ahead, or writes that never came to the disk."""
    is_overflow: bool
    """They start with a sound batch whose offset does not fit this segment: it belongs into one of its own."""


class Segment:
    """An existing segment as a listing of its folder shows it; `Segment.create` makes a new one."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        *,
        size_bytes: int,
        created_ms: int,
        options: SegmentOptions = DEFAULT_OPTIONS,
        read_only: bool = False,
        state: FileState = FileState.LIVE,
    ) -> None:
        opening = RLock()
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        """How far the log may be read."""
        self.created_ms = created_ms
        """When this object was made: rolling by time falls back on it."""
        self.options = options
        self.read_only = read_only
        self._files = SegmentFiles(fs, folder, base_offset, read_only=read_only, state=state, opening=opening)
        shared: dict[str, Any] = {"read_only": read_only, "opening": opening}
        self.transaction_index = TransactionIndex(fs, self.path(FileKind.TRANSACTION_INDEX), base_offset, **shared)
        shared["max_bytes"] = options.index_max_bytes
        # Of the files, not of this object: then nothing refers to it in a circle, and the files are closed, and the
        # disk has its room back, as soon as the last reader of a deleted segment lets go of it.
        build = partial(_build, self._files, options.index_interval_bytes, check_crc=False)
        self.offset_index = OffsetIndex(
            fs, self.path(FileKind.OFFSET_INDEX), base_offset, rebuild=lambda: build().offset_entries, **shared
        )
        self.time_index = TimeIndex(
            fs, self.path(FileKind.TIME_INDEX), base_offset, rebuild=lambda: build().time_entries, **shared
        )
        self._is_new = False
        self._is_growing = False
        self._is_unsynced = False
        self._reserved_entries = 0
        self._bytes_since_entry = 0
        self._next_offset: int | None = None
        self._largest_timestamp: tuple[int, int] | None = None
        self._indexed_timestamp_ms: int | None = None
        self._first_timestamp_ms: int | None = None

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        *,
        created_ms: int,
        options: SegmentOptions = DEFAULT_OPTIONS,
        state: FileState = FileState.LIVE,
    ) -> Segment:
        """A new segment, with an empty log. Its index files come with the first append."""
        segment = cls(fs, folder, base_offset, size_bytes=0, created_ms=created_ms, options=options, state=state)
        segment._files.create_log(options)
        segment._is_new = True
        segment._is_unsynced = True
        segment._next_offset = base_offset
        segment._largest_timestamp = (NO_TIMESTAMP, base_offset)
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path(FileKind.LOG)!r}, size_bytes={self.size_bytes})"

    def path(self, kind: FileKind) -> str:
        return self._files.path(kind)

    @property
    def state(self) -> FileState:
        return self._files.state

    @property
    def file(self) -> File:
        """The log file. Whoever holds it can read on, whatever happens to the segment."""
        return self._files.log

    # Reading: any thread, at any time.

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        min_one: bool = False,
        max_batch_bytes: int | None = None,
    ) -> LogSlice | None:
        """The log from the batch that holds the offset, or the next one above; None if there is none.

        The slice has `max_bytes` at most and ends at `max_position` at the latest. With `min_one` it holds the first
        batch whole, whatever its size, or raises `RecordTooLarge` if that is above `max_batch_bytes`. Otherwise it may
        end inside of a batch, even of the first.
        """
        end = self.size_bytes
        found = self.find_batch(offset, end)
        if found is None:
            return None
        if min_one and found.size > max_bytes:
            if max_batch_bytes is not None and found.size > max_batch_bytes:
                raise RecordTooLarge(
                    f"{self.path(FileKind.LOG)}: position {found.position}: a batch of {found.size} bytes, "
                    f"but the limit for one is {max_batch_bytes}"
                )
            max_bytes = found.size
        if max_position is not None and max_position < end:
            end = max_position
        return LogSlice(self.file, found.position, max(0, min(max_bytes, end - found.position)), found.size)

    def find_batch(self, offset: int, end: int | None = None) -> FoundBatch | None:
        """The first batch whose last offset is this one or above; None if there is none before `end`."""
        return find_batch(self.file, self.size_bytes if end is None else end, self.offset_index, offset)

    def find_offset_by_timestamp(self, timestamp_ms: int, start_offset: int = 0) -> TimestampedOffset | None:
        """The first record from `start_offset` on with this timestamp or a later one; None if there is none."""
        return find_record_by_time(
            self.file, self.size_bytes, self.offset_index, self.time_index, timestamp_ms, start_offset
        )

    def batches_from(self, position: int = 0, *, end: int | None = None, check_crc: bool = True) -> Iterator[Piece]:
        """The batches from a position where one starts."""
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        return read_pieces(self.file, start=position, end=end, check_crc=check_crc)

    def next_offset(self) -> int:
        """One above the last offset; the base offset if there is none.

        A read-only segment ends with its last whole batch from here on: its owner may be in the middle of an append.
        Any other that does not end with a whole batch raises `CorruptRecord`: it must be recovered first.
        """
        if self._next_offset is None:
            self._find_tail()
            assert self._next_offset is not None
        return self._next_offset

    @property
    def first_timestamp_ms(self) -> int | None:
        """The largest timestamp of the first batch, which rolling by time counts from; None without a batch."""
        if self._first_timestamp_ms is None:
            first = next(walk(self.file, 0, self.size_bytes), None)
            self._first_timestamp_ms = None if first is None else first.max_timestamp_ms
        return self._first_timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp of any record; -1 if none has one."""
        largest = self._largest_timestamp
        if largest is not None:
            return largest[0]
        if self._indexed_timestamp_ms is None:
            last = self.time_index.last
            self._indexed_timestamp_ms = NO_TIMESTAMP if last is None else last.timestamp_ms
        return self._indexed_timestamp_ms

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of any record, or the time of the log file if none has one."""
        largest = self.max_timestamp_ms
        return largest if largest >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        path = self.path(FileKind.LOG)
        entry = self._files.fs.entry(path)
        if entry is None:
            raise StorageError(f"{path}: cannot look at: there is no such file")
        return entry.modified_ms

    # Writing: one thread at a time.

    def append(self, buffers: Sequence[Bytes], batches: NDArray[Any]) -> int:
        """Write batches at the end. Returns the position of the first.

        REQUIRES: `batches` (`BATCH_DTYPE`) describes all that is in the buffers, positions counted from their first
        byte, and `fits` has said yes.
        """
        rows = batches.tolist()
        if self._reserved_entries < len(rows):
            self._prepare_to_append(len(rows))
        if rows[0][_LAST_OFFSET] < self.next_offset():
            raise InvalidRecord(f"{self!r}: offset {rows[0][_LAST_OFFSET]} does not follow {self.next_offset() - 1}")
        written = self.file.append(*buffers)
        self._is_unsynced = True
        self._reserved_entries -= len(rows)
        assert self._largest_timestamp is not None
        largest, largest_offset = self._largest_timestamp
        position = self.size_bytes
        bytes_since_entry = self._bytes_since_entry
        interval_bytes = self.options.index_interval_bytes
        # `format.index_entries.IndexRule`, without its objects.
        for row in rows:
            if row[_MAX_TIMESTAMP] > largest:
                largest, largest_offset = row[_MAX_TIMESTAMP], row[_LAST_OFFSET]
            if bytes_since_entry > interval_bytes:
                self.offset_index.append(row[_LAST_OFFSET], position + row[_POSITION])
                self.time_index.maybe_append(largest, largest_offset)
                bytes_since_entry = 0
            bytes_since_entry += row[_SIZE]
        self._bytes_since_entry = bytes_since_entry
        self._largest_timestamp = largest, largest_offset
        self._next_offset = rows[-1][_LAST_OFFSET] + 1
        self.size_bytes = position + written
        return position

    def fits(self, last_offset: int, size_bytes: int) -> bool:
        """Whether an append of this size that ends with this offset can be written here at all."""
        return 0 <= last_offset - self.base_offset <= _INT32_MAX and self.size_bytes + size_bytes <= _INT32_MAX

    @property
    def is_index_full(self) -> bool:
        return self.offset_index.is_full or self.time_index.is_full

    def resize_indexes(self) -> None:
        """Bring both index files to their full size. The first append does it by itself."""
        self.offset_index.resize()
        self.time_index.resize()

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds the offset, and all that follow. Returns how many bytes that was."""
        self._check_writable()
        found = self.find_batch(offset)
        self._forget()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        before = self.size_bytes
        if found is not None:
            self.cut(found.position)
        return before - self.size_bytes

    def cut(self, size_bytes: int) -> None:
        """Let the log end here, at the end of a batch; of a read-only segment, only for its readers.

        REQUIRES: no index entry leads behind it, as after `recover` or `truncate_to`.
        """
        # The size first, so that no reader starts to read what is about to go.
        self.size_bytes = size_bytes
        if not self.read_only:
            self.file.truncate(size_bytes)
            self._is_unsynced = True
        self._forget()

    def recover(self, visit: Visit | None = None) -> RecoveredSegment:
        """Check every batch, and build both indexes again from those before the first bad one.

        `visit` sees every valid batch: producers, aborted transactions and epochs are the caller's. The transaction
        index is emptied first, for the caller to fill meanwhile. The log is not cut.
        """
        self.transaction_index.reset()
        end = self.size_bytes
        built = _build(self._files, self.options.index_interval_bytes, end=end, visit=visit)
        self._forget()
        self.offset_index.rewrite(built.offset_entries)
        self.time_index.rewrite(built.time_entries)
        return RecoveredSegment(
            valid_bytes=built.valid_bytes,
            cut_bytes=end - built.valid_bytes,
            reason=built.reason,
            next_offset=built.last_offset + 1,
            is_blank=built.reason is not None and self._is_blank(built.valid_bytes, end),
            is_overflow=built.is_overflow,
        )

    def on_roll(self) -> None:
        """Bring every file to the size of its contents: the segment is not written to any more."""
        if self._is_new:
            # Kafka takes a segment without an index for a damaged one.
            self.resize_indexes()
        if self._is_growing and self._largest_timestamp is not None:
            self.time_index.maybe_append(*self._largest_timestamp, is_final=True)
        self.offset_index.trim()
        self.time_index.trim()
        if self._is_growing or self._is_new:
            self.file.truncate(self.size_bytes)
        self._is_new = self._is_growing = False
        self._reserved_entries = 0

    def flush(self) -> None:
        """Return when all that was written before would survive a loss of power. Any thread may call it."""
        if self._is_unsynced:
            # Cleared first: an append meanwhile sets it again.
            self._is_unsynced = False
            try:
                self.file.sync()
            except BaseException:
                self._is_unsynced = True
                raise
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def close(self) -> None:
        """Bring the files to their final size and let go of them. What readers hold stays open until they let go."""
        self.on_roll()
        self._files.close()
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.close()

    def rename(self, state: FileState) -> None:
        """Give the files the suffix of this state. They can be read as before."""
        self._files.rename(state)
        self.offset_index.path = self.path(FileKind.OFFSET_INDEX)
        self.time_index.path = self.path(FileKind.TIME_INDEX)
        self.transaction_index.path = self.path(FileKind.TRANSACTION_INDEX)

    def delete(self) -> None:
        """Remove the files. Who holds the segment reads on what it had open; the rest is gone."""
        self._files.remove()

    def set_modified_ms(self, modified_ms: int) -> None:
        self._files.fs.set_modified_ms(self.path(FileKind.LOG), modified_ms)

    def _prepare_to_append(self, batches: int) -> None:
        """Open what is needed, and make sure of room for the entries of so many batches and for the final one."""
        self._check_writable()
        self.next_offset()
        entries = max(batches, _RESERVED_ENTRIES)
        self.offset_index.reserve(entries)
        self.time_index.reserve(entries + 1)
        self._is_growing = True
        self._reserved_entries = entries

    def _find_tail(self) -> None:
        tail = find_tail(self.file, self.size_bytes, self.offset_index, self.time_index, is_foreign=self.read_only)
        if self.read_only:
            self.size_bytes = tail.end
        elif tail.end != self.size_bytes:
            raise CorruptRecord(
                "the file ends inside a batch",
                fault=Fault.PARTIAL_BATCH,
                file=self.path(FileKind.LOG),
                position=tail.end,
                expected="a whole batch",
                found=f"{self.size_bytes - tail.end} bytes",
            )
        self._largest_timestamp = tail.largest_timestamp
        self._next_offset = tail.last_offset + 1

    def _forget(self) -> None:
        """What was known of the end, and of the indexes."""
        self._reserved_entries = 0
        self._bytes_since_entry = 0
        self._next_offset = None
        self._largest_timestamp = None
        self._indexed_timestamp_ms = None
        self._first_timestamp_ms = None

    def _is_blank(self, position: int, end: int) -> bool:
        steps = range(position, end, _BLANK_BYTES)
        return not any(any(self.file.read(step, min(_BLANK_BYTES, end - step))) for step in steps)

    def _check_writable(self) -> None:
        if self.read_only:
            raise StorageError(f"{self.path(FileKind.LOG)}: cannot write: the segment was opened for reading")


def _build(
    files: SegmentFiles,
    interval_bytes: int,
    *,
    end: int | None = None,
    check_crc: bool = True,
    visit: Visit | None = None,
) -> BuiltIndexes:
    log = files.log
    return build_indexes(
        log,
        files.base_offset,
        end=log.size if end is None else end,
        interval_bytes=interval_bytes,
        check_crc=check_crc,
        visit=visit,
    )
