"""Find one record of a log by offset, time or key, and report each step of the way.

It follows the path of every read: the segment by its name, a position in it by the sparse index, from there batch by
batch. Here each step is reported, so the searches are written out; `duralog.storage.segment.lookup` has the fast ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.config.progress import Counted, OnProgress, ignore
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.filenames import FileKind
from duralog.format.index_entries import OffsetIndexEntry, TimeIndexEntry
from duralog.format.layout import CONTROL_BIT
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.reading import end_fault
from duralog.storage.segment.batch_walk import walk
from duralog.storage.segment.segment import Segment

_MOST_BATCHES = 8
"""The number of passed batches that are reported: the last ones."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class SinceTime:
    """The first record of this time or later."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WithKey:
    """The newest record with the key: the one that a compaction would keep."""

    key: bytes


Target = AtOffset | SinceTime | WithKey


@dataclass(frozen=True, slots=True)
class SegmentChosen:
    """By its base offset, or by the largest timestamp in it."""

    segments: Sequence[Segment]
    chosen: Segment | None
    target: AtOffset | SinceTime


@dataclass(frozen=True, slots=True)
class NextSegment:
    """The previous one had no such record."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Probe:
    """An entry that a binary search compared."""

    number: int
    entry: OffsetIndexEntry | TimeIndexEntry
    is_above: bool
    """The target is before it."""


@dataclass(frozen=True, slots=True)
class IndexSearched:
    segment: Segment
    target: AtOffset | SinceTime
    entries: int
    probes: Sequence[Probe]
    number: int | None
    """Of the last entry that is not above the target; None if there is none."""
    found: OffsetIndexEntry | TimeIndexEntry
    """That entry, or the start of the segment."""


@dataclass(frozen=True, slots=True)
class EntryIsWrong:
    """There is no batch at the position of the entry, or a later one: the scan begins at the start of the log."""

    segment: Segment
    position: int


@dataclass(frozen=True, slots=True)
class WalkStarted:
    segment: Segment
    position: int
    target: AtOffset | SinceTime


@dataclass(frozen=True, slots=True)
class BatchesPassed:
    segment: Segment
    batches: NDArray[Any]
    """The last ones, as `duralog.kernels.columns.BATCH_DTYPE`."""
    before: int
    """How many there were before."""
    is_found: bool
    """The last one has the record."""


@dataclass(frozen=True, slots=True)
class ScanStarted:
    """No index has keys: every record is read, the newest segment first."""


@dataclass(frozen=True, slots=True)
class SegmentScanned:
    segment: Segment
    batches: int
    is_found: bool


@dataclass(frozen=True, slots=True)
class BatchFound:
    segment: Segment
    batches: NDArray[Any]
    """One."""


@dataclass(frozen=True, slots=True)
class RecordFound:
    records: DecodedRecords
    """One."""
    wanted: int | None = None
    """The requested offset. If a compaction has removed it, the record is the next one."""


@dataclass(frozen=True, slots=True)
class NothingFound:
    target: Target


@dataclass(frozen=True, slots=True)
class DamageMet:
    """The scan for a key continues after it."""

    error: CorruptRecord


Step = (
    SegmentChosen
    | NextSegment
    | IndexSearched
    | EntryIsWrong
    | WalkStarted
    | BatchesPassed
    | ScanStarted
    | SegmentScanned
    | BatchFound
    | RecordFound
    | NothingFound
    | DamageMet
)
OnStep = Callable[[Step], None]


def lookup(log: PartitionLog, target: Target, on_step: OnStep, *, on_progress: OnProgress = ignore) -> bool:
    """Whether the record exists. Damage raises an error, except in the scan for a key."""
    way = _Way(log, on_step)
    if isinstance(target, AtOffset):
        is_found = way.to_offset(target)
    elif isinstance(target, SinceTime):
        is_found = way.to_time(target)
    else:
        is_found = way.to_key(target.key, on_progress)
    if not is_found:
        on_step(NothingFound(target))
    return is_found


class _Way:
    def __init__(self, log: PartitionLog, on_step: OnStep) -> None:
        self._log = log
        self._on_step = on_step

    def to_offset(self, target: AtOffset) -> bool:
        log, offset = self._log, target.offset
        if not log.start_offset <= offset < log.end_offset:
            raise OffsetOutOfRange(
                f"{log.topic}-{log.partition} has no offset {offset}: "
                + (
                    f"its offsets are {log.start_offset} to {log.end_offset - 1}"
                    if log.end_offset > log.start_offset
                    else f"it is empty, the next offset is {log.end_offset}"
                )
            )
        segments = log.view.segments
        segment: Segment | None = segments.floor(offset) or segments.first
        self._on_step(SegmentChosen(segments, segment, target))
        while segment is not None:
            position = self._search_offsets(segment, offset)
            if self._walk(segment, position, offset, target):
                return True
            segment = segments.after(segment)
            if segment is not None:
                self._on_step(NextSegment(segment))
        return False

    def to_time(self, target: SinceTime) -> bool:
        segments = self._log.view.segments
        candidates = [segment for segment in segments if segment.largest_timestamp_ms >= target.timestamp_ms]
        self._on_step(SegmentChosen(segments, candidates[0] if candidates else None, target))
        for segment in candidates:
            begin = max(self._search_times(segment, target), self._log.start_offset)
            position = self._search_offsets(segment, begin)
            if self._walk(segment, position, begin, target):
                return True
        return False

    def to_key(self, key: bytes, on_progress: OnProgress) -> bool:
        self._on_step(ScanStarted())
        read_bytes = 0

        def advance(segment: Segment, count: int) -> None:
            nonlocal read_bytes
            read_bytes += count
            name = segment.path(FileKind.LOG).rpartition("/")[2]
            on_progress(Counted(label=name, done=min(read_bytes, total_bytes), total=total_bytes))

        total_bytes = self._log.size_bytes
        for segment in reversed(self._log.view.segments):
            found, batches = self._last_with_key(segment, key, advance)
            self._on_step(SegmentScanned(segment, batches, found is not None))
            if found is not None:
                place = int(found.batch_row[0])
                batch = found.batches[place : place + 1]
                self._search_offsets(segment, int(batch["last_offset"][0]))
                self._on_step(BatchFound(segment, batch))
                self._on_step(RecordFound(found))
                return True
        return False

    def _search_offsets(self, segment: Segment, offset: int) -> int:
        """The position to read from."""
        entries = list(segment.offset_index.entries())
        probes = _binary_search(entries, [entry.offset for entry in entries], offset)
        number = _last_below(probes)
        found = OffsetIndexEntry(segment.base_offset, 0) if number is None else entries[number]
        self._on_step(IndexSearched(segment, AtOffset(offset), len(entries), probes, number, found))
        return found.position

    def _search_times(self, segment: Segment, target: SinceTime) -> int:
        """No record before this offset is that late."""
        entries = list(segment.time_index.entries())
        probes = _binary_search(entries, [entry.timestamp_ms for entry in entries], target.timestamp_ms)
        number = _last_below(probes)
        found = TimeIndexEntry(-1, segment.base_offset) if number is None else entries[number]
        self._on_step(IndexSearched(segment, target, len(entries), probes, number, found))
        return found.offset

    def _walk(self, segment: Segment, position: int, begin: int, target: AtOffset | SinceTime) -> bool:
        """Go from batch to batch until one has the record. The index gave `position` for the offset `begin`."""
        if position and not _is_right(segment, position, begin):
            self._on_step(EntryIsWrong(segment, position))
            position = 0
        self._on_step(WalkStarted(segment, position, target))
        since_ms = target.timestamp_ms if isinstance(target, SinceTime) else None
        wanted = target.offset if isinstance(target, AtOffset) else None
        first_offset = self._log.start_offset if wanted is None else wanted
        passed = np.empty(0, BATCH_DTYPE)
        count = 0
        for piece in segment.batches_from(position):
            is_reached = piece.batches["last_offset"] >= first_offset
            if since_ms is not None:
                is_reached &= piece.batches["max_timestamp"] >= since_ms
            for row in np.flatnonzero(is_reached).tolist():
                found = _first_record(piece, row, first_offset, since_ms)
                if found is not None:
                    passed = _last_batches(passed, piece.batches[: row + 1])
                    before = count + row + 1 - len(passed)
                    self._on_step(BatchesPassed(segment, passed, before, is_found=True))
                    self._on_step(RecordFound(found, wanted))
                    return True
            passed = _last_batches(passed, piece.batches)
            count += len(piece.batches)
            fault = end_fault(piece)
            if fault is not None:
                raise fault
        self._on_step(BatchesPassed(segment, passed, count - len(passed), is_found=False))
        return False

    def _last_with_key(
        self, segment: Segment, key: bytes, advance: Callable[[Segment, int], None]
    ) -> tuple[DecodedRecords | None, int]:
        found: DecodedRecords | None = None
        batches = 0
        for piece in segment.batches_from(0):
            batches += len(piece.batches)
            is_data = (piece.batches["magic"] < 2) | (piece.batches["attributes"] & CONTROL_BIT == 0)
            for decoded in piece.decode(
                np.flatnonzero(is_data), on_corrupt=lambda error, _: self._on_step(DamageMet(error))
            ):
                rows = decoded.with_key(key, np.flatnonzero(decoded.columns.offset >= self._log.start_offset))
                if len(rows):
                    found = decoded.take(rows[-1:])
            fault = end_fault(piece)
            if fault is not None:
                self._on_step(DamageMet(fault))
            advance(segment, len(piece.data))
        return found, batches


def _binary_search(
    entries: Sequence[OffsetIndexEntry] | Sequence[TimeIndexEntry], keys: Sequence[int], target: int
) -> list[Probe]:
    probes: list[Probe] = []
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        is_above = keys[middle] > target
        probes.append(Probe(middle, entries[middle], is_above))
        low, high = (low, middle) if is_above else (middle + 1, high)
    return probes


def _last_below(probes: Sequence[Probe]) -> int | None:
    return next((probe.number for probe in reversed(probes) if not probe.is_above), None)


def _last_batches(passed: NDArray[Any], batches: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([passed, batches[-_MOST_BATCHES:]])[-_MOST_BATCHES:]


def _is_right(segment: Segment, position: int, begin: int) -> bool:
    """Whether the batch at the position of an index entry ends at the offset that was looked up, or before."""
    try:
        batch = next(walk(segment.file, position, segment.size_bytes), None)
    except CorruptRecord:
        return False
    return batch is not None and batch.last_offset <= begin


def _first_record(piece: Piece, row: int, first_offset: int, since_ms: int | None) -> DecodedRecords | None:
    for decoded in piece.decode(np.array([row], np.intp)):
        columns = decoded.columns
        chosen = columns.offset >= first_offset
        if since_ms is not None:
            chosen &= columns.timestamp >= since_ms
        rows = np.flatnonzero(chosen)
        if len(rows):
            return decoded.take(rows[:1])
    return None
