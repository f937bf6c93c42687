"""A new segment while compaction writes it: `.cleaned` files, which have no effect until they are swapped in.

If the machine dies, the next start removes them. The indexes are written when the log is complete, by the same rule as
for a growing segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from duralog.errors import InvalidRecord, StorageError
from duralog.format.filenames import FileKind, FileState, SegmentFile
from duralog.format.index_entries import AbortedTransaction, encode_transaction_index
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from duralog.format.varint import Bytes
from duralog.kernels.columns import copy_rows
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.segment.index_builder import IndexBuilder
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import KINDS, SegmentFiles, SegmentOptions

MOST_BYTES = 2**31 - 1
"""A position in an index has 32 bits."""


_WRITTEN_AHEAD = 8 << 20
"""The writeback of this many bytes starts while the next ones are made, or the sync at the end would wait for all."""


class CleanedSegment:
    """One thread writes. Either `finish` or `discard` ends it."""

    def __init__(self, fs: FileSystem, folder: str, base_offset: int, options: SegmentOptions) -> None:
        self._fs = fs
        self._folder = folder
        self._base_offset = base_offset
        self._options = options
        self._indexes = IndexBuilder(base_offset, options.index_interval_bytes)
        self._aborted: list[AbortedTransaction] = []
        self.size_bytes = 0
        self._sync_begun = 0
        # An earlier attempt may have left files behind.
        for kind in KINDS:
            fs.remove(self._path(kind))
        self._log = fs.open(self._path(FileKind.LOG), writable=True, create=True)

    def append(self, buffers: Sequence[Bytes], batches: NDArray[Any]) -> int:
        """Write batches (`BATCH_DTYPE`) at the end, positions counted from the first byte of the buffers.

        Returns the number of bytes.
        """
        rows = copy_rows(batches)
        positions = rows["position"]
        positions += self.size_bytes
        # A damaged batch that was copied has a place in the index all the same.
        rows["crc_ok"] = 1
        if self._indexes.add(rows) < len(rows):
            raise InvalidRecord(f"{self._path(FileKind.LOG)}: the batches to write are not in order")
        written = self._log.append(*buffers)
        self.size_bytes += written
        if self.size_bytes - self._sync_begun >= _WRITTEN_AHEAD:
            self._log.begin_sync(self._sync_begun)
            self._sync_begun = self.size_bytes
        return written

    def fits(self, size_bytes: int) -> bool:
        """Whether this many more bytes can be written."""
        return self.size_bytes + size_bytes <= MOST_BYTES

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Transactions whose abort marker is in the segment, in the order of the markers."""
        self._aborted += transactions

    def finish(self, *, modified_ms: int, created_ms: int) -> Segment:
        """Sync everything but the folder. The modification time of the files becomes `modified_ms`."""
        # Also cuts off the preallocated room.
        self._log.truncate(self.size_bytes)
        self._log.sync()
        self._log.close()
        offset_entries, time_entries = self._indexes.finish()
        offset_entries, time_entries = self._limited(offset_entries, time_entries)
        self._fs.write(self._path(FileKind.OFFSET_INDEX), offset_entries, sync=True)
        self._fs.write(self._path(FileKind.TIME_INDEX), time_entries, sync=True)
        if self._aborted:
            entries = encode_transaction_index(self._aborted)
            self._fs.write(self._path(FileKind.TRANSACTION_INDEX), entries, sync=True)
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            self._fs.set_modified_ms(self._path(kind), modified_ms)
        return Segment(
            SegmentFiles(self._fs, self._folder, self._base_offset, state=FileState.CLEANED),
            size_bytes=self.size_bytes,
            created_ms=created_ms,
            options=self._options,
        )

    def discard(self) -> None:
        """Remove the files. The next attempt, or the next start, removes what cannot be removed now."""
        self._log.close()
        for kind in KINDS:
            with suppress(StorageError):
                self._fs.remove(self._path(kind))

    def _limited(self, offset_entries: bytes, time_entries: bytes) -> tuple[bytes, bytes]:
        """Within the configured size: a smaller `index.interval.bytes` than before may give more entries."""
        offset_limit = _whole_entries(self._options.index_max_bytes, OFFSET_INDEX_ENTRY)
        time_limit = _whole_entries(self._options.index_max_bytes, TIME_INDEX_ENTRY)
        if len(time_entries) > time_limit:
            # The last one holds the segment's largest timestamp.
            last = time_entries[-TIME_INDEX_ENTRY.size :]
            time_entries = time_entries[: time_limit - TIME_INDEX_ENTRY.size] + last
        return offset_entries[:offset_limit], time_entries

    def _path(self, kind: FileKind) -> str:
        return f"{self._folder}/{SegmentFile(self._base_offset, kind, FileState.CLEANED).name}"


def _whole_entries(size_bytes: int, layout: Layout) -> int:
    return size_bytes // layout.size * layout.size
