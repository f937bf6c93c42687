"""The reading side of a segment. Any thread may use it at any time, without a lock.

Creating the object opens no file: name and size come from a listing of the folder, and each file is opened when it is
first used. What a reader holds (`LogSlice`, a piece, an index table) stays valid when the segment is rolled, renamed or
deleted. `size_bytes` bounds every read; the writer raises it after the bytes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from duralog.columnar.pieces import Piece, read_pieces
from duralog.errors import CorruptRecord, Fault, RecordTooLarge, StorageError
from duralog.format.filenames import FileKind, FileState
from duralog.format.layout import NO_TIMESTAMP
from duralog.storage.disk import forks
from duralog.storage.disk.file_system import File
from duralog.storage.segment.batch_walk import walk
from duralog.storage.segment.index_builder import BuiltIndexes, Visit, build_indexes
from duralog.storage.segment.lookup import (
    FoundBatch,
    LogSlice,
    Tail,
    TimestampedOffset,
    find_batch,
    find_record_by_time,
    find_tail,
    largest_timestamp,
)
from duralog.storage.segment.segment_files import DEFAULT_OPTIONS, SegmentFiles, SegmentOptions
from duralog.storage.segment.sparse_index import OffsetIndex, TimeIndex
from duralog.storage.segment.transaction_index import TransactionIndex

_Made = TypeVar("_Made")
_INDEXES = ("offset_index", "time_index", "transaction_index")


class _AtFirstUse(Generic[_Made]):
    """An index of a segment, created at its first use. Most of the segments of a directory are never used."""

    def __init__(self, make: Callable[[Any], _Made]) -> None:
        self._make = make
        self._name = make.__name__

    def __get__(self, segment: Any, _owner: type) -> _Made:
        # Not called again once the index exists: an attribute of the segment comes first. Under the lock, since a
        # concurrent rename sets the path of the indexes that exist.
        with segment._opening:
            made: _Made | None = segment.__dict__.get(self._name)
            if made is None:
                made = segment.__dict__[self._name] = self._make(segment)
            return made


class ReadableSegment:
    """A segment as a listing of its folder shows it."""

    def __init__(
        self,
        files: SegmentFiles,
        *,
        size_bytes: int,
        created_ms: int,
        options: SegmentOptions = DEFAULT_OPTIONS,
        modified_ms: int | None = None,
        has_transaction_index: bool = True,
    ) -> None:
        """`modified_ms` is the time of the log file when it was listed; without it, the file's time now is used.

        `has_transaction_index=False` saves the check for that file if the listing did not have it.
        """
        self._process = forks.here
        self._files = files
        self._opening = files.opening
        self.base_offset = files.base_offset
        self.size_bytes = size_bytes
        """How far the log may be read."""
        self.created_ms = created_ms
        """When this object was made: rolling by time falls back on it."""
        self.options = options
        self.read_only = files.read_only
        self._are_indexes_read_only = files.read_only
        self._has_transaction_index = has_transaction_index
        self._next_offset: int | None = None
        self._tail: Tail | None = None
        self._largest_timestamp: tuple[int, int] | None = None
        self._indexed_timestamp_ms: int | None = None
        self._first_timestamp_ms: int | None = None
        self._modified_ms = modified_ms

    @_AtFirstUse
    def offset_index(self) -> OffsetIndex:
        build = self._rebuild()
        path = self.path(FileKind.OFFSET_INDEX)
        return OffsetIndex(self._files.fs, path, rebuild=lambda: build().offset_entries, **self._of_sparse_index())

    @_AtFirstUse
    def time_index(self) -> TimeIndex:
        build = self._rebuild()
        path = self.path(FileKind.TIME_INDEX)
        return TimeIndex(self._files.fs, path, rebuild=lambda: build().time_entries, **self._of_sparse_index())

    @_AtFirstUse
    def transaction_index(self) -> TransactionIndex:
        path = self.path(FileKind.TRANSACTION_INDEX)
        index = TransactionIndex(self._files.fs, path, **self._of_index())
        if not self._has_transaction_index:
            index.reset()
        return index

    def _made_indexes(self) -> list[OffsetIndex | TimeIndex | TransactionIndex]:
        """The indexes that exist. REQUIRES: `_opening` is held, or missing a new one does no harm."""
        return [made for name in _INDEXES if (made := self.__dict__.get(name)) is not None]

    def _of_index(self) -> dict[str, Any]:
        return {
            "base_offset": self.base_offset,
            "read_only": self._are_indexes_read_only,
            "opening": self._opening,
        }

    def _of_sparse_index(self) -> dict[str, Any]:
        return {**self._of_index(), "max_bytes": self.options.index_max_bytes}

    def _rebuild(self) -> Callable[[], BuiltIndexes]:
        # Bound to the files, not to this object: without a reference cycle, the files of a deleted segment are closed,
        # and their disk space is released, as soon as the last reader drops it.
        return partial(rebuild, self._files, self.options.index_interval_bytes, check_crc=False)

    def __repr__(self) -> str:
        return f"Segment({self.path(FileKind.LOG)!r}, size_bytes={self.size_bytes})"

    def path(self, kind: FileKind) -> str:
        return self._files.path(kind)

    def check_process(self) -> None:
        """Raise `StorageError` in a forked child, where a lock of another thread would never be released."""
        if self._process is not forks.here:
            self._process.check(self.path(FileKind.LOG))

    @property
    def state(self) -> FileState:
        return self._files.state

    @property
    def file(self) -> File:
        """The log file. A reader that holds it can read on, even if the segment is renamed or deleted."""
        return self._files.log

    def let_go(self) -> None:
        """Close the log of a read-only segment until its next use: a directory may have very many segments."""
        if self.read_only:
            self._files.let_go()

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

        The slice has `max_bytes` at most and ends at `max_position` at the latest. With `min_one` it holds the
        whole first batch, even if that is larger, or raises `RecordTooLarge` if it is larger than `max_batch_bytes`.
        Otherwise it may end inside a batch, even inside the first.
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

        A read-only segment is cut to its last whole batch, in memory: another process may be in the middle of an
        append. A writable segment that does not end with a whole batch raises `CorruptRecord`: recover it first.
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
        if self._largest_timestamp is None and self._tail is not None:
            self._largest_timestamp = largest_timestamp(self._tail, self.time_index)
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
        if self._modified_ms is not None:
            return self._modified_ms
        with self._opening:
            # Under the lock: another thread may be about to rename it.
            path = self.path(FileKind.LOG)
            entry = self._files.fs.entry(path)
        if entry is None:
            raise StorageError(f"{path}: no such file")
        return entry.modified_ms

    def _find_tail(self) -> None:
        # The writing process may have cut off preallocated space since the file was listed.
        end = min(self.size_bytes, self.file.size) if self.read_only else self.size_bytes
        tail = find_tail(self.file, end, self.offset_index, is_foreign=self.read_only)
        if self.read_only:
            self.size_bytes = tail.end
            self._tail = tail  # Most readers need no times: the time index is read when one does.
        elif tail.end != self.size_bytes:
            raise CorruptRecord(
                "the file ends inside a batch",
                fault=Fault.PARTIAL_BATCH,
                file=self.path(FileKind.LOG),
                position=tail.end,
                expected="a whole batch",
                found=f"{self.size_bytes - tail.end} bytes",
            )
        else:
            self._largest_timestamp = largest_timestamp(tail, self.time_index)
        self._next_offset = tail.last_offset + 1

    def _forget(self) -> None:
        """Drop what was cached of the contents, since they change."""
        self._next_offset = None
        self._tail = None
        self._largest_timestamp = None
        self._indexed_timestamp_ms = None
        self._first_timestamp_ms = None


def rebuild(
    files: SegmentFiles,
    interval_bytes: int,
    *,
    end: int | None = None,
    check_crc: bool = True,
    visit: Visit | None = None,
) -> BuiltIndexes:
    """Both indexes, from the log up to `end`, or to its own end."""
    log = files.log
    return build_indexes(
        log,
        files.base_offset,
        end=log.size if end is None else end,
        interval_bytes=interval_bytes,
        check_crc=check_crc,
        visit=visit,
    )
