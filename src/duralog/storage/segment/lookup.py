"""Lookups in the log of one segment: a batch by offset, a record by time, the end of the log.

An index leads near the position, a walk over the batch headers to it. The offset index only saves time: if an entry
points to no batch, or to one after the target, the walk starts at the start of the segment. So a wrong entry costs time
and a warning, never a wrong result. The time index is trusted, as Kafka does: only reading the whole log could show
that no record before an entry's offset is later than its timestamp.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format.index_entries import OffsetIndexEntry
from duralog.format.layout import NO_LEADER_EPOCH, NO_TIMESTAMP
from duralog.storage.disk.file_system import File
from duralog.storage.segment.batch_walk import BatchHeader, first_reaching, walk
from duralog.storage.segment.damage import find_batches
from duralog.storage.segment.sparse_index import OffsetIndex, TimeIndex

_log = logging.getLogger(__name__)

_HEADER_FIELDS = ("position", "size", "base_offset", "last_offset", "max_timestamp")
"""The columns of a scanned batch, in the order of `BatchHeader`."""
_SEARCHED_BYTES = 4 << 20
"""Larger than most batches. Preallocated space is not searched to its end."""
_WALKED_BYTES = 64 << 10
"""A log up to this size is walked from its start: one read of an object store, where an index takes two requests."""


class LogSlice(NamedTuple):
    """Bytes of a log file that start at a batch. They may end inside a batch, and stay readable while this is held."""

    file: File
    position: int
    size: int
    first_batch_bytes: int
    """The size of the first batch, which may be more than `size`."""

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


class FoundBatch(NamedTuple):
    position: int
    size: int
    last_offset: int


class _OffsetAndTime(NamedTuple):
    offset: int
    timestamp_ms: int


class TimestampedOffset(_OffsetAndTime):
    """A record found by time: its offset and timestamp, and as an attribute its leader epoch."""

    leader_epoch: int

    def __new__(cls, offset: int, timestamp_ms: int, leader_epoch: int = NO_LEADER_EPOCH) -> Self:
        found = super().__new__(cls, offset, timestamp_ms)
        found.leader_epoch = leader_epoch
        return found


class Tail(NamedTuple):
    """The end of a segment."""

    end: int
    """Where the last whole batch ends."""
    last_offset: int
    """The last offset of that batch; one below the segment's base offset if there is no batch."""
    largest_timestamp: tuple[int, int]
    """The largest timestamp of the batches that were walked, and the last offset of the first batch that has it."""
    is_whole: bool
    """All batches of the segment were walked, and each has a timestamp: the time index has nothing to add."""


def find_batch(file: File, end: int, index: OffsetIndex, offset: int) -> FoundBatch | None:
    """The first batch before `end` whose last offset is the given one or above."""
    entry = index.lookup(offset)
    if entry.position:
        try:
            found = first_reaching(file, entry.position, end, offset)
            if found is None:
                at_entry = next(walk(file, entry.position, end), None)
                is_right = at_entry is not None and at_entry.last_offset <= offset
            else:
                # The batch of an entry ends at the entry's offset; in an index of an older Kafka, there or before.
                is_right = found[0] != entry.position or found[2] <= offset
        except CorruptRecord as error:
            _warn_wrong_entry(index, entry, error)
        else:
            if is_right:
                return None if found is None else FoundBatch(*found)
            _warn_wrong_entry(index, entry, "another batch is there")
    found = first_reaching(file, 0, end, offset)
    return None if found is None else FoundBatch(*found)


def find_record_by_time(
    file: File, end: int, offset_index: OffsetIndex, time_index: TimeIndex, timestamp_ms: int, start_offset: int
) -> TimestampedOffset | None:
    """The first record from `start_offset` on whose timestamp is the given one or above."""
    reached_before = time_index.lookup(timestamp_ms).offset
    begin = find_batch(file, end, offset_index, max(reached_before, start_offset))
    if begin is None:
        return None
    for batch in walk(file, begin.position, end):
        if batch.max_timestamp_ms >= timestamp_ms and batch.last_offset >= start_offset:
            found = _first_record(file, batch, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _first_record(file: File, batch: BatchHeader, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
    for piece in read_pieces(file, start=batch.position, end=batch.position + batch.size):
        for decoded in piece.decode():
            columns = decoded.columns
            wanted = (columns.timestamp >= timestamp_ms) & (columns.offset >= start_offset)
            row = int(np.argmax(wanted)) if len(wanted) else 0
            if len(wanted) and wanted[row]:
                return TimestampedOffset(
                    int(columns.offset[row]), int(columns.timestamp[row]), int(piece.batches["leader_epoch"][0])
                )
    return None


def find_tail(file: File, end: int, offset_index: OffsetIndex, *, is_foreign: bool = False) -> Tail:
    """The end of the segment, searched from its last index entry on. An incomplete batch at the end is left out.

    Other bytes that cannot be a batch raise `CorruptRecord`. In a file that another process may be writing to
    (`is_foreign`), they end the segment, and so does a batch with a wrong checksum: the file may be preallocated, with
    half a batch before the zeros. But if a valid batch follows, the bytes are damage, which readers will report.
    """
    batches = _valid_batches if is_foreign else walk
    base_offset = offset_index.base_offset
    if is_foreign and end <= _WALKED_BYTES:
        return _tail_of(batches(file, 0, end), base_offset, is_from_start=True)
    entry = offset_index.last
    if entry is None or entry.offset < base_offset or not 0 <= entry.position < end:
        # Only the last entry was read so far. A search opens and checks the index, and rebuilds it if it is wrong.
        entry = offset_index.lookup_position(end - 1)
    tail = _no_tail(base_offset)
    if entry.position:
        try:
            tail = _tail_of(batches(file, entry.position, end), base_offset)
        except CorruptRecord as error:
            if error.fault is Fault.PARTIAL_BATCH:
                raise  # The file was cut meanwhile: the index is not wrong.
            _warn_wrong_entry(offset_index, entry, error)
    if tail.last_offset < entry.offset:
        tail = _tail_of(batches(file, 0, end), base_offset)
    return tail


def largest_timestamp(tail: Tail, time_index: TimeIndex) -> tuple[int, int]:
    """The largest timestamp of the segment up to its tail, and the last offset of the first batch that has it."""
    if tail.is_whole:
        return tail.largest_timestamp
    reached = time_index.last
    if reached is not None and reached.offset > tail.last_offset:
        reached = time_index.lookup_offset(tail.last_offset)
    if reached is not None and reached.timestamp_ms >= tail.largest_timestamp[0]:
        return reached.timestamp_ms, reached.offset
    return tail.largest_timestamp


def _no_tail(base_offset: int) -> Tail:
    return Tail(0, base_offset - 1, (NO_TIMESTAMP, base_offset), is_whole=False)


def _tail_of(batches: Iterator[BatchHeader], base_offset: int, *, is_from_start: bool = False) -> Tail:
    end, last_offset, largest, _ = _no_tail(base_offset)
    is_whole = is_from_start
    for batch in batches:
        end, last_offset = batch.position + batch.size, batch.last_offset
        if batch.max_timestamp_ms > largest[0]:
            largest = batch.max_timestamp_ms, batch.last_offset
        elif batch.max_timestamp_ms == NO_TIMESTAMP:
            is_whole = False  # It is damaged, perhaps, and the time index knows it.
    return Tail(end, last_offset, largest, is_whole)


def _valid_batches(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """The batches up to the last valid one, with the damaged ranges between them."""
    last_offset = -1
    unsound: list[BatchHeader] = []
    while True:
        for piece in read_pieces(file, start=position, end=end):
            for row in piece.batches:
                header = BatchHeader(*(int(row[name]) for name in _HEADER_FIELDS))
                position = header.position + header.size
                if not row["crc_ok"] or header.last_offset <= last_offset:
                    unsound.append(header._replace(max_timestamp_ms=NO_TIMESTAMP))
                    continue
                last_offset = header.last_offset
                yield from unsound
                unsound.clear()
                yield header
        following = _next_valid(file, position, end, last_offset)
        if following is None:
            return
        unsound.append(BatchHeader(position, following - position, last_offset, last_offset, NO_TIMESTAMP))
        position = following


def _next_valid(file: File, position: int, end: int, last_offset: int) -> int | None:
    """The position of the next valid batch with offsets above `last_offset`, within a limited distance."""
    if position >= end:
        return None
    searched = MemorySource(file.read(position, min(end - position, _SEARCHED_BYTES)))
    for rows in find_batches(searched):
        for row in rows[rows["last_offset"] > last_offset]:
            return position + int(row["position"])
    return None


def _warn_wrong_entry(index: OffsetIndex, entry: OffsetIndexEntry, reason: object) -> None:
    _log.warning(
        "%s: wrong index entry: offset %d is not at position %d: %s", index.path, entry.offset, entry.position, reason
    )
