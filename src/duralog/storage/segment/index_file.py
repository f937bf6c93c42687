"""The file of a sparse index, and how it is opened, extended and cut. Kafka's `AbstractIndex`.

An index is opened when it is first used. While its segment is written to, the file has its full size, with zeros after
the entries, and is mapped; `trim` cuts the zeros off when the segment is rolled or closed. A read-only index is read,
not mapped: the writing process may cut the file at any time.

What must always be true:
- Readers take no lock. They hold an `IndexTable`, in which entries are written before they are counted. The count of a
  table never falls: removing entries starts a new file and a new table. So no reader ever reads beyond the end of a
  mapped file, not even when the index is truncated and trimmed while it searches.
- Disk space is reserved before an entry is written (`reserve`): a full disk is an error, not a signal.
- Losing an index costs time, not data. One that is missing, or whose entries do not rise, is rebuilt from the log when
  it is opened: on disk, or in memory if the segment is read-only. What a crash leaves of an index is either zeros after
  the entries, which do not count, or is rewritten by recovery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import RLock

from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import HALF_WRITTEN_SUFFIX
from duralog.format.index_entries import used_bytes
from duralog.format.layout import Layout
from duralog.storage.disk.file_system import FileSystem, MappedFile

DEFAULT_MAX_BYTES = 10 << 20
"""Kafka's default of `segment.index.bytes`."""


class IndexTable:
    """Entries that readers may search: the first `count` entries of `view`."""

    __slots__ = ("count", "is_growing", "mapping", "view")

    def __init__(
        self, view: memoryview, count: int, mapping: MappedFile | None = None, is_growing: bool = False
    ) -> None:
        self.view = view
        self.count = count
        self.mapping = mapping
        self.is_growing = is_growing


class IndexFile(ABC):
    """A file of rising entries. One thread writes at a time; `opening` guards opening and replacing the file."""

    layout: Layout

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        base_offset: int,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        read_only: bool = False,
        rebuild: Callable[[], bytes] = bytes,
        opening: RLock | None = None,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self.read_only = read_only
        self._fs = fs
        self._rebuild = rebuild
        self._opening = opening or RLock()
        self._table: IndexTable | None = None
        self._is_unsynced = False

    @property
    def entry_count(self) -> int:
        return self._opened().count

    @property
    def capacity(self) -> int:
        """How many entries fit the configured size."""
        return self.max_bytes // self.layout.size

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether the segment must be rolled before its next append."""

    def resize(self) -> None:
        """Extend the file to its full size, ready for appends."""
        self._check_writable()
        with self._opening:
            table = self._opened()
            if table.is_growing:
                return
            size = max(self.capacity, table.count) * self.layout.size
            mapping = self._fs.map(self.path, size)
            self._is_unsynced = True
            self._table = IndexTable(mapping.view, table.count, mapping, is_growing=True)

    def reserve(self, entries: int) -> None:
        """Reserve disk space for this many more entries, or for as many as fit."""
        table = self._table
        if table is None or not table.is_growing:
            self.resize()
            table = self._opened()
        assert table.mapping is not None
        table.mapping.reserve(min((table.count + entries) * self.layout.size, len(table.view)))

    def trim(self) -> None:
        """Cut off the zeros after the last entry. The index stays readable."""
        with self._opening:
            table = self._table
            if table is not None and table.is_growing:
                self._fs.truncate(self.path, table.count * self.layout.size)
                self._is_unsynced = True
                self._table = None

    def withhold(self) -> None:
        """Remove the file. Until `release`, it is written under a temporary name that no reader uses."""
        self._check_writable()
        with self._opening:
            self._table = None
            self._is_unsynced = False
            self._fs.remove(self.path)
            self.path += HALF_WRITTEN_SUFFIX

    def release(self) -> None:
        """Rename the file to its final name. REQUIRES: `withhold`, and that it was rewritten since."""
        with self._opening:
            path = self.path.removesuffix(HALF_WRITTEN_SUFFIX)
            self._fs.rename(self.path, path)
            self.path = path

    def rewrite(self, entries: bytes) -> None:
        """Replace all entries, in a new file of their size; only in memory if the segment is read-only."""
        with self._opening:
            if self.read_only:
                self._table = self._in_memory(entries)
                return
            self._table = None
            self._fs.remove(self.path)
            self._fs.write(self.path, entries, sync=False)
            self._is_unsynced = True

    def flush(self, *, again: bool = False) -> None:
        """Return when the entries are durable; with `again`, also those that another process wrote."""
        if not self._is_unsynced and not (again and self._fs.exists(self.path)):
            return
        try:
            # Cleared first: a concurrent append sets it again.
            self._is_unsynced = False
            table = self._table
            if table is not None and table.is_growing and table.mapping is not None:
                table.mapping.sync()
            else:
                with self._opening:
                    file = self._fs.open(self.path, writable=True)
                file.sync()
        except BaseException:
            self._is_unsynced = True
            raise

    def close(self) -> None:
        """Close the file: nothing more is written. Readers keep the table that they hold."""
        self.read_only = True
        self._table = None

    def as_bytes(self) -> bytes:
        """The entries as a trimmed file holds them."""
        table = self._opened()
        return bytes(table.view[: table.count * self.layout.size])

    def _truncate_to_count(self, count: int) -> None:
        table = self._opened()
        if count < table.count:
            was_growing = table.is_growing
            self.rewrite(bytes(table.view[: count * self.layout.size]))
            if was_growing:
                self.resize()

    def _opened(self) -> IndexTable:
        table = self._table
        return table if table is not None else self._open()

    def _open(self) -> IndexTable:
        with self._opening:
            if self._table is None:
                self._table = self._read() or self._built()
            return self._table

    def _read(self) -> IndexTable | None:
        """The entries of the file; None if it is missing or inconsistent."""
        entry = self._fs.entry(self.path)
        if entry is None or entry.size % self.layout.size:
            return None
        if self.read_only:
            mapping = None
            view = memoryview(self._fs.read_all(self.path))
        else:
            mapping = self._fs.map(self.path, entry.size)
            view = mapping.view
        used = used_bytes(view, self.layout)
        if used and not self._is_consistent(view[:used]):
            return None
        return IndexTable(view, used // self.layout.size, mapping)

    def _built(self) -> IndexTable:
        entries = self._rebuild()
        if self.read_only or not (entries or self._fs.exists(self.path)):
            return self._in_memory(entries)
        self.rewrite(entries)
        mapping = self._fs.map(self.path, len(entries))
        return IndexTable(mapping.view, len(entries) // self.layout.size, mapping)

    def _in_memory(self, entries: bytes) -> IndexTable:
        return IndexTable(memoryview(entries), len(entries) // self.layout.size)

    def _last_entry(self) -> tuple[int, ...] | None:
        """The fields of the last entry. If the index is not open, only the end of its file is read."""
        table = self._table
        if table is None:
            last = self._read_end()
            # Zeros may be unused space after the entries.
            if len(last) == self.layout.size and any(last):
                return self.layout.unpack(last)
            table = self._opened()
        return self.layout.unpack(table.view, (table.count - 1) * self.layout.size) if table.count else None

    def _read_end(self) -> bytes:
        """The last entry of the file; nothing if the file is empty or its size is not a multiple of an entry's."""
        with self._opening:
            if not self._fs.exists(self.path):
                return b""
            file = self._fs.open(self.path)
            if file.size == 0 or file.size % self.layout.size:
                return b""
            try:
                return file.read(file.size - self.layout.size, self.layout.size)
            except CorruptRecord:
                # The writing process has just cut the zeros off.
                return b""

    def _check_writable(self) -> None:
        if self.read_only:
            raise StorageError(f"{self.path}: cannot write: the segment was opened for reading")

    @abstractmethod
    def _is_consistent(self, entries: memoryview) -> bool:
        """Whether the entries are in order. REQUIRES: there is at least one."""
