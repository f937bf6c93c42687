"""The two sparse indexes of a segment: offset to position, and timestamp to offset.

A lookup returns the greatest entry that is not above the target; from there the caller scans the log. An entry holds
the last offset of a batch. `duralog.format.index_entries` has the rule for when an entry is due; `IndexFile` has the
file. In Kafka: `OffsetIndex` and `TimeIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.format.index_entries import OffsetIndexEntry, TimeIndexEntry, decode_offset_index, decode_time_index
from duralog.format.layout import NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from duralog.storage.segment.index_file import IndexFile, IndexTable

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_SIZE = OFFSET_INDEX_ENTRY.size
_TIME_SIZE = TIME_INDEX_ENTRY.size

OFFSET_ENTRIES = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRIES = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
assert OFFSET_ENTRIES.itemsize == OFFSET_INDEX_ENTRY.size
assert TIME_ENTRIES.itemsize == TIME_INDEX_ENTRY.size


def entries_rise(entries: NDArray[Any]) -> bool:
    """Whether no entry (`OFFSET_ENTRIES` or `TIME_ENTRIES`) breaks the order of its index."""
    if not len(entries):
        return True
    relative = entries["relative_offset"]
    if relative[0] < 0:
        return False
    if entries.dtype == OFFSET_ENTRIES:
        position = entries["position"]
        return bool(position[0] >= 0 and (relative[1:] > relative[:-1]).all() and (position[1:] > position[:-1]).all())
    timestamp = entries["timestamp"]
    return bool(
        timestamp[0] > NO_TIMESTAMP and (relative[1:] >= relative[:-1]).all() and (timestamp[1:] > timestamp[:-1]).all()
    )


def _search(table: IndexTable, key: struct.Struct, key_position: int, entry_size: int, target: int) -> int:
    """How many entries at the start of the table have a key that is not above the target."""
    view = table.view
    unpack = key.unpack_from
    low, high = 0, table.count
    while low < high:
        middle = (low + high) >> 1
        if unpack(view, middle * entry_size + key_position)[0] <= target:
            low = middle + 1
        else:
            high = middle
    return low


class OffsetIndex(IndexFile):
    """From a batch's last offset to the batch's position."""

    layout = OFFSET_INDEX_ENTRY
    _pack_into = OFFSET_INDEX_ENTRY.struct.pack_into

    @property
    def is_full(self) -> bool:
        return self._opened().count >= self.capacity

    @property
    def last(self) -> OffsetIndexEntry | None:
        fields = self._last_entry()
        return None if fields is None else OffsetIndexEntry(self.base_offset + fields[0], fields[1])

    def append(self, offset: int, position: int) -> None:
        """Add an entry, or skip it if the index is full. REQUIRES: `reserve`, and that both numbers rise."""
        table = self._table
        assert table is not None
        assert table.is_growing
        at = table.count * _OFFSET_SIZE
        if at < len(table.view):
            self._pack_into(table.view, at, offset - self.base_offset, position)
            table.count += 1
            self._is_unsynced = True

    def lookup(self, offset: int) -> OffsetIndexEntry:
        """The last entry that is not above the offset; the segment's start if there is none."""
        table = self._opened()
        return self._entry(table, _search(table, _INT32, 0, _OFFSET_SIZE, offset - self.base_offset) - 1)

    def upper_bound_by_position(self, position: int) -> OffsetIndexEntry | None:
        """The first entry at or after the position; None if there is none."""
        table = self._opened()
        slot = _search(table, _INT32, OFFSET_INDEX_ENTRY.at.position, _OFFSET_SIZE, position - 1)
        return self._entry(table, slot) if slot < table.count else None

    def lookup_position(self, position: int) -> OffsetIndexEntry:
        """The last entry that is not after the position; the segment's start if there is none."""
        table = self._opened()
        at = OFFSET_INDEX_ENTRY.at.position
        return self._entry(table, _search(table, _INT32, at, _OFFSET_SIZE, position) - 1)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of this offset and above."""
        self._check_writable()
        self._truncate_to_count(_search(self._opened(), _INT32, 0, _OFFSET_SIZE, offset - 1 - self.base_offset))

    def entries(self) -> Iterator[OffsetIndexEntry]:
        return decode_offset_index(self.as_bytes(), self.base_offset)

    def _entry(self, table: IndexTable, slot: int) -> OffsetIndexEntry:
        if slot < 0:
            return OffsetIndexEntry(self.base_offset, 0)
        relative, position = OFFSET_INDEX_ENTRY.unpack(table.view, slot * _OFFSET_SIZE)
        return OffsetIndexEntry(self.base_offset + relative, position)

    def _is_consistent(self, entries: memoryview) -> bool:
        return entries_rise(np.frombuffer(entries, OFFSET_ENTRIES))


class TimeIndex(IndexFile):
    """From the largest timestamp so far to the last offset of the first batch that reached it."""

    layout = TIME_INDEX_ENTRY
    _pack_into = TIME_INDEX_ENTRY.struct.pack_into
    _last_timestamp: int | None = None

    @property
    def is_full(self) -> bool:
        """One entry below the capacity: the last place is reserved for the final entry of the segment."""
        return self._opened().count >= self.capacity - 1

    @property
    def last(self) -> TimeIndexEntry | None:
        fields = self._last_entry()
        return None if fields is None else TimeIndexEntry(fields[0], self.base_offset + fields[1])

    def maybe_append(self, timestamp_ms: int, offset: int, *, is_final: bool = False) -> None:
        """Add an entry if the timestamp is above that of the last entry and the index is not full. REQUIRES: `reserve`.

        The last place in the file is reserved for the final entry, when the segment is rolled or closed.
        """
        table = self._table
        assert table is not None
        assert table.is_growing
        if self._last_timestamp is None:
            self._last_timestamp = self._entry(table, table.count - 1).timestamp_ms
        if timestamp_ms <= self._last_timestamp:
            return
        at = table.count * _TIME_SIZE
        if at + (_TIME_SIZE if is_final else 2 * _TIME_SIZE) <= len(table.view):
            self._pack_into(table.view, at, timestamp_ms, offset - self.base_offset)
            table.count += 1
            self._last_timestamp = timestamp_ms
            self._is_unsynced = True

    def rewrite(self, entries: bytes) -> None:
        self._last_timestamp = None
        super().rewrite(entries)

    def lookup(self, timestamp_ms: int) -> TimeIndexEntry:
        """The last entry that is not above the timestamp; no timestamp and the segment's start if there is none."""
        table = self._opened()
        return self._entry(table, _search(table, _INT64, 0, _TIME_SIZE, timestamp_ms) - 1)

    def lookup_offset(self, offset: int) -> TimeIndexEntry:
        """The last entry that is not after the offset; no timestamp and the segment's start if there is none."""
        table = self._opened()
        at = TIME_INDEX_ENTRY.at.relative_offset
        return self._entry(table, _search(table, _INT32, at, _TIME_SIZE, offset - self.base_offset) - 1)

    def latest_up_to(self, offset: int) -> int | None:
        """A timestamp that no record up to this offset exceeds; None if the entries do not reach that far."""
        table = self._opened()
        at = TIME_INDEX_ENTRY.at.relative_offset
        slot = _search(table, _INT32, at, _TIME_SIZE, offset - 1 - self.base_offset)
        return self._entry(table, slot).timestamp_ms if slot < table.count else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of this offset and above."""
        self._check_writable()
        at = TIME_INDEX_ENTRY.at.relative_offset
        self._truncate_to_count(_search(self._opened(), _INT32, at, _TIME_SIZE, offset - 1 - self.base_offset))

    def entries(self) -> Iterator[TimeIndexEntry]:
        return decode_time_index(self.as_bytes(), self.base_offset)

    def _entry(self, table: IndexTable, slot: int) -> TimeIndexEntry:
        if slot < 0:
            return TimeIndexEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = TIME_INDEX_ENTRY.unpack(table.view, slot * _TIME_SIZE)
        return TimeIndexEntry(timestamp, self.base_offset + relative)

    def _is_consistent(self, entries: memoryview) -> bool:
        return entries_rise(np.frombuffer(entries, TIME_ENTRIES))
