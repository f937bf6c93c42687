"""Restores valid batches from a partition's quarantine.

A batch goes back if it is valid and its offsets are free: nothing was written there meanwhile, and they are not below
the start of the log. The checksum does not cover offsets, so they must also be between those of the batches before and
after it: a batch that was removed for a wrong offset stays out. It goes into the segment that it was taken from, or the
one that holds such offsets now. Segments are rewritten as a whole (`duralog.storage.recovery.segment_rewrite`), so a
crash leaves the old one or the new one, and restoring again puts back what is still missing. Before that, the cleaner's
checkpoint is lowered: no compaction has read what comes back.

The files in quarantine stay there; their report says how many of their batches were restored.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import read_pieces
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.disk.shadow import ShadowFileSystem
from duralog.storage.recovery.leftovers import settle_leftovers
from duralog.storage.recovery.quarantine import NO_OFFSET, Quarantine, QuarantineReport
from duralog.storage.recovery.segment_rewrite import (
    BeforeChange,
    ByteRange,
    NewSegment,
    never_compacted,
    rewrite_segment,
)
from duralog.storage.segment.damage import find_batches

_INT32_MAX = 2**31 - 1
_NO_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of one entry of the quarantine."""

    report: QuarantineReport
    restored_offsets: tuple[tuple[int, int], ...]
    """The first and last offset of each batch that went back."""
    other_batches: int
    """How many valid batches stayed out: their offsets are taken, wrong, below the log's start, or after a gap."""


class _Batch(NamedTuple):
    first_offset: int
    last_offset: int
    file: File
    position: int
    size: int
    entry: int
    """Which report it comes from; -1 for one of the log."""


_IN_LOG = -1
_BUILT_AGAIN = (FileKind.PRODUCER_SNAPSHOT, FileKind.OFFSET_INDEX)


def restore(
    fs: FileSystem,
    folder: str,
    *,
    clock: Clock,
    log_start_offset: int = 0,
    before_change: BeforeChange = never_compacted,
    leaves_no_gap: bool = False,
    dry_run: bool = False,
) -> list[Restored]:
    """Restore what can be restored, or only report it.

    `leaves_no_gap` is for a log that cannot be read beyond missing offsets: no batch is put back after a gap.

    REQUIRES: no process has the partition open, and its logs are sound: a rewritten segment holds nothing but batches.
    Afterwards it must be loaded: from the first batch that went back, segments have no offset index.
    """
    if dry_run:
        fs = ShadowFileSystem(fs)
    listing = settle_leftovers(fs, folder)
    parsed = (parse_segment_file(entry.name) for entry in listing if not entry.is_folder)
    live = [known for known in parsed if known is not None and known.state is FileState.LIVE]
    log = _Log(fs, folder, sorted(known.offset for known in live if known.kind is FileKind.LOG))
    quarantine = Quarantine(fs, folder, clock)
    reports = quarantine.reports()
    found = [0] * len(reports)
    for number, report in enumerate(reports):
        file = quarantine.open(report)
        for batch in _batches(find_batches(file), file, number):
            found[number] += 1
            if leaves_no_gap and batch.first_offset > log.end_offset:
                continue
            if batch.last_offset >= log_start_offset and _was_there(batch, report):
                log.add(batch, report.base_offset)
    accepted = log.added
    if accepted and not dry_run:
        for known in live:
            # What is known of producers, and of transactions that were aborted, is not all of it any more. A segment
            # without an offset index is recovered.
            if known.kind in _BUILT_AGAIN and known.offset > accepted[0].first_offset:
                fs.remove(os.path.join(folder, known.name))
        log.rewrite(before_change)
    results = []
    for number, report in enumerate(reports):
        offsets = tuple((batch.first_offset, batch.last_offset) for batch in accepted if batch.entry == number)
        results.append(Restored(report, offsets, found[number] - len(offsets)))
        if offsets and not dry_run:
            quarantine.mark_restored(report, len(offsets))
    return results


class _Segment:
    """The batches of a segment as it is to be, in order."""

    def __init__(self, base_offset: int, batches: list[_Batch]) -> None:
        self.base_offset = base_offset
        self.batches = batches
        self._size_bytes = sum(batch.size for batch in batches)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.base_offset

    def insert(self, batch: _Batch, limit_offset: int) -> bool:
        """Take the batch in if its offsets are free, from the base up to the limit. Returns whether they were."""
        place = bisect_right(self.batches, batch.first_offset, key=lambda known: known.first_offset)
        before = self.batches[place - 1].last_offset if place else self.base_offset - 1
        after = self.batches[place].first_offset if place < len(self.batches) else limit_offset
        if not before < batch.first_offset <= batch.last_offset < after:
            return False
        if batch.last_offset - self.base_offset > _INT32_MAX or self._size_bytes + batch.size > _INT32_MAX:
            return False
        self.batches.insert(place, batch)
        self._size_bytes += batch.size
        return True

    def ranges(self) -> list[ByteRange]:
        """Where the batches are, neighbours joined."""
        ranges: list[ByteRange] = []
        for batch in self.batches:
            end = batch.position + batch.size
            if ranges and ranges[-1].file is batch.file and ranges[-1].end == batch.position:
                ranges[-1] = ranges[-1]._replace(end=end)
            else:
                ranges.append(ByteRange(batch.file, batch.position, end))
        return ranges


class _Log:
    """The segments of a log. They are read when a batch may belong into them."""

    def __init__(self, fs: FileSystem, folder: str, bases: list[int]) -> None:
        self._fs = fs
        self._folder = folder
        self._bases = bases
        self._segments: dict[int, _Segment] = {}
        self._changed: set[int] = set()

    @property
    def end_offset(self) -> int:
        return self._read(self._bases[-1]).end_offset if self._bases else 0

    @property
    def added(self) -> list[_Batch]:
        """The batches that were not in the log, in order."""
        changed = (self._segments[base_offset] for base_offset in sorted(self._changed))
        return [batch for segment in changed for batch in segment.batches if batch.entry != _IN_LOG]

    def add(self, batch: _Batch, base_offset: int) -> None:
        """Take the batch in if its place is free; `base_offset` is that of the segment it once was in."""
        place = bisect_right(self._bases, batch.first_offset)
        limit_offset = self._bases[place] if place < len(self._bases) else _NO_LIMIT
        holder = self._read(self._bases[place - 1]) if place else None
        if holder is None or (holder.base_offset < base_offset and holder.end_offset <= base_offset):
            # Its segment went as a whole, and nothing has taken its place.
            holder = _Segment(base_offset, [])
        if not holder.insert(batch, limit_offset):
            return
        self._changed.add(holder.base_offset)
        if holder.base_offset not in self._segments:
            self._segments[holder.base_offset] = holder
            self._bases.insert(bisect_right(self._bases, holder.base_offset), holder.base_offset)

    def rewrite(self, before_change: BeforeChange) -> None:
        for base_offset in sorted(self._changed):
            before_change(base_offset)
            old = self._fs.entry(self._path(base_offset))
            rewrite_segment(
                self._fs,
                self._folder,
                base_offset,
                [NewSegment(base_offset, self._segments[base_offset].ranges())],
                modified_ms=None if old is None else old.modified_ms,
            )

    def _read(self, base_offset: int) -> _Segment:
        if base_offset not in self._segments:
            file = self._fs.open(self._path(base_offset))
            runs = (piece.batches for piece in read_pieces(file, check_crc=False))
            self._segments[base_offset] = _Segment(base_offset, list(_batches(runs, file, _IN_LOG)))
        return self._segments[base_offset]

    def _path(self, base_offset: int) -> str:
        return os.path.join(self._folder, SegmentFile(base_offset, FileKind.LOG).name)


def _was_there(batch: _Batch, report: QuarantineReport) -> bool:
    is_below = report.offset_after == NO_OFFSET or batch.last_offset < report.offset_after
    return report.offset_before < batch.first_offset and is_below


def _batches(runs: Iterable[NDArray[Any]], file: File, entry: int) -> Iterator[_Batch]:
    for rows in runs:
        # What comes first inside an old message is not known: its last offset stands for all.
        first = np.where(rows["magic"] < 2, rows["last_offset"], rows["base_offset"])
        columns = (first, rows["last_offset"], rows["position"], rows["size"])
        for first_offset, last_offset, position, size in zip(*(column.tolist() for column in columns), strict=True):
            yield _Batch(first_offset, last_offset, file, position, size, entry)
