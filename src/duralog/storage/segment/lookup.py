"""Finding things in one segment's log: a batch by offset, a record by time, the end.

An index leads near the place, a walk over the headers to it. An offset index only shortens the way: where an entry
leads to no batch, or to one behind what is looked for, the walk starts at the segment's start instead. So a wrong one
costs time and a line in the log, never a wrong answer. A time index is taken at its word, as Kafka takes it: that
nothing before an entry's offset is later than its timestamp could only be checked by reading all of it.
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
"""Of a scanned batch, in the order of `BatchHeader`."""
_SEARCHED_BYTES = 4 << 20
"""More than a batch has, as a rule. Room that was allocated ahead is not gone through to its end."""


class LogSlice(NamedTuple):
    """Bytes of a log file, starting at a batch. They may end inside of one, and stay readable while this is held."""

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
    """A record found by time: its offset and its timestamp, and beside the two the epoch that it was written in."""

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
    """Its last offset; one below the segment's base if there is none."""
    largest_timestamp: tuple[int, int]
    """Of the whole segment, with the last offset of the first batch that reaches it."""


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
                # The batch of an entry ends at the entry's offset; in the index of an older Kafka, there or before.
                is_right = found[0] != entry.position or found[2] <= offset
        except CorruptRecord as error:
            _tell_wrong(index, entry, error)
        else:
            if is_right:
                return None if found is None else FoundBatch(*found)
            _tell_wrong(index, entry, "that batch is another one")
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


def find_tail(
    file: File, end: int, offset_index: OffsetIndex, time_index: TimeIndex, *, is_foreign: bool = False
) -> Tail:
    """The end of the segment, found from its last index entry on. Half a batch at the end is left out.

    Other bytes that cannot be a batch raise `CorruptRecord`. In a foreign file, which its owner may be writing to, they
    end the segment, and so does a batch with a wrong checksum: there may be zeros that were allocated ahead, with half
    a batch in them. But what a sound batch follows was written whole: it is damage, and stays for readers to find.
    """
    batches = _valid_batches if is_foreign else walk
    base_offset = offset_index.base_offset
    entry = offset_index.last
    if entry is None or entry.offset < base_offset or not 0 <= entry.position < end:
        # Nobody has looked at the whole index yet: whoever searches it finds that it cannot be right, or a better one.
        entry = offset_index.lookup_position(end - 1)
    tail = _no_tail(base_offset)
    if entry.position:
        try:
            tail = _tail_of(batches(file, entry.position, end), base_offset)
        except CorruptRecord as error:
            if error.fault is Fault.PARTIAL_BATCH:
                raise  # The file is shorter now, which is no fault of the index.
            _tell_wrong(offset_index, entry, error)
    if tail.last_offset < entry.offset:
        tail = _tail_of(batches(file, 0, end), base_offset)
    reached = time_index.last
    if reached is not None and reached.offset > tail.last_offset:
        reached = time_index.lookup_offset(tail.last_offset)
    if reached is not None and reached.timestamp_ms >= tail.largest_timestamp[0]:
        return tail._replace(largest_timestamp=(reached.timestamp_ms, reached.offset))
    return tail


def _no_tail(base_offset: int) -> Tail:
    return Tail(0, base_offset - 1, (NO_TIMESTAMP, base_offset))


def _tail_of(batches: Iterator[BatchHeader], base_offset: int) -> Tail:
    end, last_offset, largest = _no_tail(base_offset)
    for batch in batches:
        end, last_offset = batch.position + batch.size, batch.last_offset
        if batch.max_timestamp_ms > largest[0]:
            largest = batch.max_timestamp_ms, batch.last_offset
    return Tail(end, last_offset, largest)


def _valid_batches(file: File, position: int, end: int) -> Iterator[BatchHeader]:
    """The batches up to the last sound one, and what lies between them."""
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
        following = _sound_behind(file, position, end, last_offset)
        if following is None:
            return
        unsound.append(BatchHeader(position, following - position, last_offset, last_offset, NO_TIMESTAMP))
        position = following


def _sound_behind(file: File, position: int, end: int, last_offset: int) -> int | None:
    """Where a batch starts that goes on from `last_offset`, not far behind bytes that lead nowhere."""
    if position >= end:
        return None
    searched = MemorySource(file.read(position, min(end - position, _SEARCHED_BYTES)))
    for rows in find_batches(searched):
        for row in rows[rows["last_offset"] > last_offset]:
            return position + int(row["position"])
    return None


def _tell_wrong(index: OffsetIndex, entry: OffsetIndexEntry, reason: object) -> None:
    _log.warning("%s: offset %d is not at position %d: %s", index.path, entry.offset, entry.position, reason)
