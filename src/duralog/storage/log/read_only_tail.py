"""The end of a log that another process writes to, found with a few small reads, however large its files are.

An index of an active segment has its full size, ten megabytes as a rule, and zeros after its entries. The last entry
is found by bisection instead of reading all of them. Indexes only lead the way here: what one claims is compared with
the log, and if it does not fit, the log is walked from its start.

Nothing is kept open. A file may vanish or become shorter at any time: `FileNotFoundError` and `CorruptRecord` come out.
"""

from __future__ import annotations

from typing import NamedTuple

from duralog.errors import CorruptRecord, Fault
from duralog.format.layout import NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from duralog.storage.disk.file_source import FileSource
from duralog.storage.segment.batch_walk import BatchHeader, walk

_MOST_HEADERS = 20_000
"""Walked at a time. The next walk starts where this one ended."""
_ZEROS_CHECKED = 64


class LogTail(NamedTuple):
    """The state of a walk over a log file."""

    position: int
    """Where the walk ended: at the end of the last whole batch, unless `is_complete` says that there are more."""
    next_offset: int
    largest_timestamp_ms: int
    is_complete: bool
    fault: CorruptRecord | None
    """The fault at `position`. Preallocated space is not a fault."""


def empty_tail(base_offset: int) -> LogTail:
    return LogTail(0, base_offset, NO_TIMESTAMP, is_complete=False, fault=None)


def walk_tail(path: str, known: LogTail) -> LogTail:
    """Continue where an earlier walk ended."""
    position, next_offset, largest_ms = known[:3]
    with FileSource(path) as log:
        headers = walk(log, position, log.size)
        for _ in range(_MOST_HEADERS):
            try:
                header = next(headers, None)
            except CorruptRecord as error:
                is_allocated_ahead = not any(log.read(position, min(_ZEROS_CHECKED, log.size - position)))
                fault = None if is_allocated_ahead else error
                return LogTail(position, next_offset, largest_ms, is_complete=True, fault=fault)
            if header is None:
                return LogTail(position, next_offset, largest_ms, is_complete=True, fault=None)
            position, next_offset = header.position + header.size, header.last_offset + 1
            largest_ms = max(largest_ms, header.max_timestamp_ms)
    return LogTail(position, next_offset, largest_ms, is_complete=False, fault=None)


def tail_by_indexes(stem: str, base_offset: int) -> LogTail:
    """The start of the walk, by the last entries of both indexes of the segment; `stem` is its path, without suffix.

    The batch of the offset index's last entry must be there and have the offset that the entry claims.
    """
    start = empty_tail(base_offset)
    entry = last_offset_entry(f"{stem}.index")
    if entry is None or entry[1] <= 0:
        return start
    offset, position = base_offset + entry[0], entry[1]
    try:
        with FileSource(f"{stem}.log") as log:
            header = next(walk(log, position, log.size), None)
    except CorruptRecord:
        return start
    if header is None or not header.first_offset <= offset <= header.last_offset:
        return start
    timestamp_ms = largest_indexed_timestamp_ms(f"{stem}.timeindex")
    return LogTail(position, header.first_offset, timestamp_ms, is_complete=False, fault=None)


def first_batch(path: str) -> BatchHeader | None:
    with FileSource(path) as log:
        return next(walk(log, 0, log.size), None)


def entries_in(path: str, layout: Layout) -> int | None:
    """How many entries an index has; None if there is no such file."""
    try:
        with FileSource(path) as source:
            return _used_entries(source, layout)
    except FileNotFoundError:
        return None
    except CorruptRecord as error:
        if error.fault is Fault.PARTIAL_BATCH:
            return None  # Its owner is cutting the zeros off.
        raise


def last_offset_entry(path: str) -> tuple[int, int] | None:
    """The last entry of an offset index: the offset, relative to the segment's base, and the position."""
    fields = _last_entry(path, OFFSET_INDEX_ENTRY)
    return None if fields is None else (fields[0], fields[1])


def largest_indexed_timestamp_ms(path: str) -> int:
    """Of the last entry of a time index; -1 if there is none."""
    fields = _last_entry(path, TIME_INDEX_ENTRY)
    return NO_TIMESTAMP if fields is None else int(fields[0])


def _last_entry(path: str, layout: Layout) -> tuple[int, ...] | None:
    try:
        with FileSource(path) as source:
            count = _used_entries(source, layout)
            return layout.unpack(source.read((count - 1) * layout.size, layout.size)) if count else None
    except (FileNotFoundError, CorruptRecord):
        return None


def _used_entries(source: FileSource, layout: Layout) -> int:
    """After the entries are zeros only, and no entry but the first is all zeros."""
    size, low, high = layout.size, 0, source.size // layout.size
    if high and any(source.read((high - 1) * size, size)):
        return high  # Most indexes have no zeros after their entries.
    while low < high:
        middle = (low + high) >> 1
        if any(source.read(middle * size, size)):
            low = middle + 1
        else:
            high = middle
    return low
