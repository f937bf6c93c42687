"""A segment: one `.log` file of batches, its two sparse indexes and its index of aborted transactions.

Only the last segment of a log is written to. `readable_segment` has the reading side.

What must always be true:
- One thread writes at a time, under the lock of its log.
- A failed append changes nothing: space in the indexes is reserved before the batch is written, and a batch that was
  written in part is cut off again.

If the machine dies, the log may end in a broken batch and the indexes may hold anything: `recover` finds the end of the
valid part and rebuilds its indexes. It does not cut the log: the caller may want to keep the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from duralog.errors import CorruptRecord, InvalidRecord, StorageError
from duralog.format.filenames import FileKind, FileState
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.varint import Bytes
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.segment.batch_extents import Extent
from duralog.storage.segment.index_builder import Visit
from duralog.storage.segment.index_file import IndexFile
from duralog.storage.segment.lookup import FoundBatch, LogSlice, TimestampedOffset
from duralog.storage.segment.readable_segment import ReadableSegment, rebuild
from duralog.storage.segment.segment_files import DEFAULT_OPTIONS, SegmentFiles, SegmentOptions

__all__ = ["FoundBatch", "LogSlice", "RecoveredSegment", "Segment", "SegmentOptions", "TimestampedOffset"]

_INT32_MAX = 2**31 - 1
_BLANK = bytes(1 << 20)
_RESERVED_ENTRIES = 1024
"""Space in the indexes is reserved for this many batches at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """Where the valid part of a segment ends."""

    valid_bytes: int
    cut_bytes: int
    """The number of bytes after it."""
    reason: CorruptRecord | None
    """What is wrong with them; None if there are none."""
    next_offset: int
    is_blank: bool
    """They are all zeros: preallocated space, or writes that never reached the disk."""
    is_overflow: bool
    """They start with a valid batch whose relative offset exceeds 32 bits: it needs a segment of its own."""


class Segment(ReadableSegment):
    """An existing segment; `Segment.create` creates a new one. One thread writes at a time."""

    _is_new = False
    """There may be no index files yet."""
    _is_growing = False
    """Batches were appended since the segment was opened, so its files are larger than their contents."""
    _is_unsynced = False
    _reserved_entries = 0
    _bytes_since_entry = 0

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        folder: str,
        base_offset: int,
        *,
        created_ms: int,
        options: SegmentOptions = DEFAULT_OPTIONS,
    ) -> Segment:
        """A new segment with an empty log. The first append creates its index files."""
        files = SegmentFiles(fs, folder, base_offset, state=FileState.LIVE)
        segment = cls(files, size_bytes=0, created_ms=created_ms, options=options)
        segment._files.create_log(options)
        segment._is_new = True
        segment._is_unsynced = True
        segment._next_offset = base_offset
        segment._largest_timestamp = (NO_TIMESTAMP, base_offset)
        return segment

    def append(self, buffers: Sequence[Bytes], batches: Sequence[Extent]) -> int:
        """Write batches at the end. Returns the position of the first.

        REQUIRES: `batches` describes everything in the buffers, and `fits` returned True.
        """
        if self._reserved_entries < len(batches):
            self._prepare_to_append(len(batches))
        first_last_offset = batches[0][2]
        if first_last_offset < self.next_offset():
            raise InvalidRecord(f"{self!r}: offset {first_last_offset} does not follow {self.next_offset() - 1}")
        written = self.file.append(*buffers)
        self._is_unsynced = True
        self._reserved_entries -= len(batches)
        assert self._largest_timestamp is not None
        largest, largest_offset = self._largest_timestamp
        end = self.size_bytes
        bytes_since_entry = self._bytes_since_entry
        interval_bytes = self.options.index_interval_bytes
        last_offset = first_last_offset
        # `format.index_entries.IndexRule`, without its objects.
        for position, size, last_offset, timestamp in batches:
            if timestamp > largest:
                largest, largest_offset = timestamp, last_offset
            if bytes_since_entry > interval_bytes:
                self.offset_index.append(last_offset, end + position)
                self.time_index.maybe_append(largest, largest_offset)
                bytes_since_entry = 0
            bytes_since_entry += size
        self._bytes_since_entry = bytes_since_entry
        self._largest_timestamp = largest, largest_offset
        self._next_offset = last_offset + 1
        self.size_bytes = end + written
        return end

    def fits(self, last_offset: int, size_bytes: int) -> bool:
        """Whether an append of this size that ends with this offset can be written here at all."""
        return 0 <= last_offset - self.base_offset <= _INT32_MAX and self.size_bytes + size_bytes <= _INT32_MAX

    def resize_indexes(self) -> None:
        """Extend both index files to their full size. The first append does this itself."""
        self.offset_index.resize()
        self.time_index.resize()

    def truncate_to(self, offset: int) -> int:
        """Cut off the batch that holds the offset, and all after it. Returns the number of bytes."""
        self._check_writable()
        found = self.find_batch(offset)
        self._forget()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        before = self.size_bytes
        if found is not None:
            self.cut(found.position)
            # The time index may have lost its final entry: rolling or closing writes another one.
            self._is_growing = True
        return before - self.size_bytes

    def cut(self, size_bytes: int) -> None:
        """End the log here, at the end of a batch. The file of a read-only segment is not changed.

        REQUIRES: no index entry points beyond it, as after `recover` or `truncate_to`.
        """
        # The size first, so that no reader starts to read what is cut off.
        self.size_bytes = size_bytes
        if not self.read_only:
            self.file.truncate(size_bytes)
            self._is_unsynced = True
        self._forget()

    def recover(self, visit: Visit | None = None) -> RecoveredSegment:
        """Check every batch, and rebuild both indexes from those before the first bad one.

        `visit` is called with every valid batch: the caller collects producers, aborted transactions and epochs. The
        transaction index is emptied first, and the caller fills it. The log is not cut.
        """
        self.transaction_index.reset()
        end = self.size_bytes
        built = rebuild(self._files, self.options.index_interval_bytes, end=end, visit=visit)
        self._forget()
        # The process that wrote this may have died before it synced.
        self._is_unsynced = not self.read_only
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
        """Cut every file to the size of its contents: the segment is complete."""
        self.check_process()
        if self._is_new:
            # Kafka treats a segment without an index as damaged.
            self.resize_indexes()
        if self._is_growing:
            if self._largest_timestamp is None or not self._reserved_entries:
                self._prepare_to_append(0)
            assert self._largest_timestamp is not None
            self.time_index.maybe_append(*self._largest_timestamp, is_final=True)
        # Before anything is cut: if that fails, the segment may still be written to, and has to reserve space again.
        self._reserved_entries = 0
        for index in self._made_indexes():
            if isinstance(index, IndexFile):
                index.trim()
        if self._is_growing or self._is_new:
            self.file.truncate(self.size_bytes)
            self._is_unsynced = True
        self._is_new = self._is_growing = False

    def flush(self, *, again: bool = False) -> None:
        """Return when all that was written is durable. Any thread may call it.

        With `again`, this includes what another process wrote.
        """
        if self._is_unsynced or again:
            try:
                # Cleared first: a concurrent append sets it again.
                self._is_unsynced = False
                self.file.sync()
            except BaseException:
                self._is_unsynced = True
                raise
        for index in (self.offset_index, self.time_index, self.transaction_index) if again else self._made_indexes():
            index.flush(again=again)

    def close(self) -> None:
        """Cut the files to their final size and close them. Files that readers hold stay open until they drop them."""
        self.on_roll()
        with self._opening:
            self._files.close()
            self._are_indexes_read_only = True
            for index in self._made_indexes():
                index.close()

    def let_go_unfinished(self) -> None:
        """Close the files as they are, without waiting for a lock: another process owns them."""
        self._files.let_go()
        self.disown()
        for index in self._made_indexes():
            index.close()

    def disown(self) -> None:
        """Change no file from now on: another process may write to the segment."""
        self.read_only = self._files.read_only = self._are_indexes_read_only = True
        for index in self._made_indexes():
            index.read_only = True

    def rename(self, state: FileState) -> None:
        """Give the files the suffix of this state. They stay readable."""
        # Atomic for a reader that is about to open one of them.
        with self._opening:
            self._files.rename(state)
            self._follow_paths()

    def names_waiting(self) -> AbstractContextManager[object]:
        """While this is held, no reader opens a file of the segment."""
        return self._opening

    def follow_folder(self, folder: str) -> None:
        """The folder was renamed. REQUIRES: `names_waiting` is held since before that."""
        self._files.follow_folder(folder)
        self._follow_paths()

    def _follow_paths(self) -> None:
        self.offset_index.path = self.path(FileKind.OFFSET_INDEX)
        self.time_index.path = self.path(FileKind.TIME_INDEX)
        self.transaction_index.path = self.path(FileKind.TRANSACTION_INDEX)

    def delete(self) -> None:
        """Remove the files. Readers of the segment can still read all of it."""
        with self._opening:
            # Its readers still need the aborted transactions. A damaged index cannot be used anyway.
            with suppress(CorruptRecord, StorageError):
                self.transaction_index.check()
            self._files.remove()
            # An index that is opened after this is built in memory.
            self._are_indexes_read_only = True
            for index in self._made_indexes():
                index.read_only = True

    def set_modified_ms(self, modified_ms: int) -> None:
        self._files.fs.set_modified_ms(self.path(FileKind.LOG), modified_ms)

    def _prepare_to_append(self, batches: int) -> None:
        """Open the files, and reserve space for the entries of this many batches and for the final one."""
        self._check_writable()
        self.next_offset()
        entries = max(batches, _RESERVED_ENTRIES)
        self.offset_index.reserve(entries)
        self.time_index.reserve(entries + 1)
        self._is_growing = True
        self._reserved_entries = entries

    def _forget(self) -> None:
        super()._forget()
        self._reserved_entries = 0
        self._bytes_since_entry = 0

    def _is_blank(self, position: int, end: int) -> bool:
        for begin in range(position, end, len(_BLANK)):
            size = min(len(_BLANK), end - begin)
            if self.file.read(begin, size) != _BLANK[:size]:
                return False
        return True

    def _check_writable(self) -> None:
        self.check_process()
        if self.read_only:
            raise StorageError(f"{self.path(FileKind.LOG)}: cannot write: the segment was opened for reading")
