"""Compaction of a log: only the last record of each key stays.

A round has two passes. The first reads the dirty part, which was appended since the last compaction, and maps each key
to its last offset. The second reads the whole log, as far as the first one came, and copies what survives, group by
group. Each group replaces the segments it was made from. If the keys do not all fit into the map, a round ends where
the map was full, and the next one starts there.

What must always be true:
- Offsets and the order of records never change; the last record of a key stays, unless it is a tombstone whose time has
  passed.
- Only one group is on disk twice at any time, apart from old files that wait for `file.delete.delay.ms`. The log is
  always complete: if the machine dies, each group is found old or new, and the same compaction can be repeated.
- Readers and appends wait only while the files of a group are renamed.
- Damage does not stop a compaction. A batch that cannot be read is copied as it is, and a segment whose batches cannot
  be found stays as it is.
- Memory is bounded: the map, and a few pieces for each worker.

In Kafka: `Cleaner`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.compacting import CompactedPiece
from duralog.columnar.pieces import Piece
from duralog.errors import DuralogError, StorageError
from duralog.format.filenames import FileState
from duralog.kernels.offset_map import map_bytes_for
from duralog.storage.compaction.cleaned_segment import CleanedSegment
from duralog.storage.compaction.mapping import map_keys
from duralog.storage.compaction.ordered_work import OrderedWork
from duralog.storage.compaction.report import (
    CompactionPhase,
    CompactionReport,
    CompactionStopped,
    Tallies,
)
from duralog.storage.compaction.rewriting import Rewriter
from duralog.storage.compaction.run import CompactionRun
from duralog.storage.compaction.settings import DEFAULT_SETTINGS, CompactionSettings
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import segment_options
from duralog.storage.segment.source import SegmentBroken, SegmentSource


def compact_log(
    log: PartitionLog,
    *,
    first_dirty_offset: int,
    end: int,
    now_ms: int,
    settings: CompactionSettings = DEFAULT_SETTINGS,
) -> CompactionReport:
    """Compact the log up to the segment that holds `end`, in as many rounds as it takes.

    `now_ms` is the time of the compaction: delete horizons are set, and have passed, relative to it.

    Raises `CompactionStopped` if the log changes while it is compacted: try again then.
    """
    began = time.perf_counter()
    with log.being_compacted() as files, OrderedWork(settings.workers) as work:
        run = CompactionRun(log, settings, work, first_dirty_offset=first_dirty_offset, end=end, now_ms=now_ms)
        try:
            _compact_to_the_end(run, files)
        except CompactionStopped:
            raise
        except DuralogError:
            if not log.in_doubt:
                settings.check_stop()  # An error because the log was truncated meanwhile is not a failure.
            raise
        run.report.seconds = time.perf_counter() - began
        return run.report


def _compact_to_the_end(run: CompactionRun, files: FileSystem) -> None:
    """All rounds, and their report."""
    log, report, settings = run.log, run.report, run.settings
    settings.check_stop()
    # Recovery takes gaps in offsets for a loss above the recovery point, and for compaction below it.
    log.flush(run.end)
    before = log.view
    keys = 0
    while report.end_offset < run.end:
        reached = _compact_once(run, files, report.end_offset)
        if reached <= report.end_offset:
            raise StorageError(f"{log.folder}: compaction makes no progress beyond offset {reached}")
        report.end_offset = reached
        keys += run.offset_map.size
        settings.on_round(report.end_offset)
    report.segments_before, report.bytes_before = extent_below(before, report.end_offset)
    report.segments_after, report.bytes_after = extent_below(log.view, report.end_offset)
    if report.rounds > 1:
        report.notes.append(_too_small(report.rounds, keys, settings))
    run.finish_report()


def _compact_once(run: CompactionRun, files: FileSystem, first_dirty_offset: int) -> int:
    """One round. Returns the offset up to which the log is compacted."""
    report = run.report
    report.rounds += 1
    view = run.log.view
    sources = run.sources(view)
    map_keys(run, view, sources, first_dirty_offset)
    began = time.perf_counter()
    rewriter = Rewriter(run, view, sources, first_dirty_offset)
    run.begin_phase(CompactionPhase.REWRITING, sum(source.size_bytes for source in rewriter.sources))
    report.begin_round()
    for group in rewriter:
        tallies = _rewrite(run, files, rewriter, group)
        if tallies is not None:
            report.add(tallies)
    report.rewrite_seconds += time.perf_counter() - began
    return run.offset_map.latest_offset + 1


def _rewrite(run: CompactionRun, files: FileSystem, rewriter: Rewriter, group: list[SegmentSource]) -> Tallies | None:
    """Compact one group and swap in the result; None if a segment of it is broken."""
    log = run.log
    tallies = Tallies()
    cleaned = CleanedSegment(files, log.folder, group[0].base_offset, segment_options(log.config))
    segment: Segment | None = None
    # Writing takes pages of the page cache. Drop as many pages of the old segments, so that the cache keeps what others
    # read; memory that was just freed is also the fastest.
    cached_more = 0
    try:
        with closing(rewriter.rewrite(group, tallies)) as pieces:
            for found in pieces:
                cleaned.add_aborted(found.kept_aborts)
                if not cleaned.fits(found.compacted.size_bytes):
                    # Compressed again, the records may take more room than before.
                    raise SegmentBroken(found.source, "what is left of it does not fit into a segment")
                if len(found.compacted.batches):
                    cached_more += found.compacted.size_bytes
                    if cached_more > 0:
                        found.source.segment.file.forget(found.piece.position, len(found.piece.data))
                        cached_more -= len(found.piece.data)
                    run.has_written(cleaned.append(found.compacted.buffers, found.compacted.batches))
        segment = cleaned.finish(modified_ms=group[-1].modified_ms, created_ms=run.now_ms)
        files.sync_folder(log.folder)
        log.swap_in(group, segment, run.settings.check_stop)
    except SegmentBroken as broken:
        run.leave(broken)
        cleaned.discard()
        return None
    except BaseException:
        if segment is None or segment.state is FileState.CLEANED:
            cleaned.discard()
        raise
    return tallies


def extent_below(view: LogView, end_offset: int) -> tuple[int, int]:
    """The number of inactive segments that start below the offset, and their bytes."""
    sizes = [segment.size_bytes for segment in view.segments.inactive if segment.base_offset < end_offset]
    return len(sizes), sum(sizes)


def _too_small(rounds: int, keys: int, settings: CompactionSettings) -> str:
    needed = map_bytes_for(keys, settings.load_factor)
    return (
        f"the keys did not fit into the map of {settings.memory_bytes} bytes, so it took {rounds} rounds, each over the"
        f" whole log: log.cleaner.dedupe.buffer.size of {needed} for each cleaner thread makes it one"
    )


class PreviewedPiece(NamedTuple):
    """What compaction would do to a piece of the log."""

    group: int
    """Pieces with the same number would become one segment."""
    segment: Segment
    piece: Piece
    verdicts: NDArray[np.int8]
    """A `BatchVerdict` for each batch of the piece."""
    compacted: CompactedPiece


class CompactionPreview:
    """What a round would do, after its first pass. Nothing is written."""

    def __init__(self, run: CompactionRun) -> None:
        self._run = run
        self.report = run.report
        """Filled while `pieces` is iterated."""
        view = run.log.view
        sources = run.sources(view)
        run.report.rounds = 1
        map_keys(run, view, sources, run.report.first_dirty_offset)
        self.end_offset = run.report.end_offset = run.offset_map.latest_offset + 1
        self.map_records = run.report.map_records
        self.map_fill = run.map_fill
        self.offset_map = run.offset_map
        for source in sources:
            # The first pass has read the others to their end.
            if source.bad_checksums is None:
                _find_break(run, source)
        self._rewriter = Rewriter(run, view, sources, run.report.first_dirty_offset)
        self.groups = tuple(tuple(source.segment for source in group) for group in self._rewriter.groups())

    def pieces(self) -> Iterator[PreviewedPiece]:
        """What compaction would do to each piece of the log, in order. Call it once."""
        run, report = self._run, self.report
        run.begin_phase(CompactionPhase.REWRITING, sum(source.size_bytes for source in self._rewriter.sources))
        report.segments_before, report.bytes_before = extent_below(run.log.view, self.end_offset)
        report.segments_after = report.segments_before
        report.bytes_after = report.bytes_before
        for number, group in enumerate(self._rewriter):
            tallies = Tallies()
            with closing(self._rewriter.rewrite(group, tallies)) as pieces:
                for source, piece, verdicts, _, compacted in pieces:
                    report.written_bytes += compacted.size_bytes
                    yield PreviewedPiece(number, source.segment, piece, verdicts, compacted)
            report.segments_after -= len(group) - 1
            report.bytes_after -= sum(source.size_bytes for source in group)
            report.add(tallies)
        report.bytes_after += report.written_bytes
        run.finish_report()


def _find_break(run: CompactionRun, source: SegmentSource) -> None:
    """Check whether the segment would have to stay as it is."""
    try:
        for _ in source.pieces(check_crc=False):
            run.settings.check_stop()
    except SegmentBroken as broken:
        run.leave(broken)


def preview_compaction(
    log: PartitionLog,
    *,
    first_dirty_offset: int,
    end: int,
    now_ms: int,
    settings: CompactionSettings = DEFAULT_SETTINGS,
) -> CompactionPreview:
    """What `compact_log` would do in its first round, which is the only one if the keys fit into the map."""
    run = CompactionRun(log, settings, OrderedWork(1), first_dirty_offset=first_dirty_offset, end=end, now_ms=now_ms)
    return CompactionPreview(run)
