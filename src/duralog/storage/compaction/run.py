"""What the two passes of a compaction share: the log, the settings, the offset map, the progress and the report."""

from __future__ import annotations

from collections.abc import Iterator

from duralog.errors import CorruptRecord
from duralog.format.filenames import FileKind
from duralog.format.index_entries import AbortedTransaction
from duralog.kernels.offset_map import SLOT_BYTES, OffsetMap, map_bytes_for
from duralog.storage.compaction.ordered_work import OrderedWork
from duralog.storage.compaction.report import (
    CompactionPhase,
    CompactionProgress,
    CompactionReport,
    CompactionStopped,
)
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.segment.source import SegmentBroken, SegmentSource

_MOST_DAMAGE_REPORTED = 1000
"""The report names no more damaged batches than this: there may be millions."""


class CompactionRun:
    """One compaction of one log, or a preview of it."""

    def __init__(
        self,
        log: PartitionLog,
        settings: CompactionSettings,
        work: OrderedWork,
        *,
        first_dirty_offset: int,
        end: int,
        now_ms: int,
    ) -> None:
        """`now_ms` is the time of the compaction: delete horizons are set, and have passed, relative to it."""
        self.log = log
        self.settings = settings
        self.now_ms = now_ms
        self.work = work
        inactive_end = log.view.segments.active.base_offset
        floor = log.view.segments.floor(min(end, inactive_end))
        self.end = log.view.segments.first.base_offset if floor is None else floor.base_offset
        """The first offset that may not be compacted: the base offset of a segment."""
        self.report = CompactionReport(
            topic=log.topic,
            partition=log.partition,
            first_dirty_offset=first_dirty_offset,
            end=self.end,
            end_offset=first_dirty_offset,
        )
        self.offset_map = self._make_map(self.end - first_dirty_offset)
        self._left: dict[int, str] = {}
        self._corrupt: dict[str, None] = {}
        self._phase = CompactionPhase.MAPPING
        self._bytes_done = 0
        self._bytes_total = 0
        self._records_read = 0
        self._records_kept = 0

    def _make_map(self, offsets: int) -> OffsetMap:
        """No larger than the offsets can fill: a small map stays in the CPU's cache."""
        settings = self.settings
        needed = map_bytes_for(max(offsets, 0), settings.load_factor)
        # An impossible size comes from the settings, and is refused there: a small range never makes one.
        return settings.make_map(min(settings.memory_bytes, needed), settings.load_factor)

    @property
    def map_fill(self) -> float:
        """How much of the configured memory is used, even if less was allocated."""
        return self.offset_map.size / (self.settings.memory_bytes // SLOT_BYTES)

    def sources(self, view: LogView) -> list[SegmentSource]:
        """The segments that may be compacted; `CompactionStopped` if retention has deleted all of them."""
        found = [segment for segment in view.segments.inactive if segment.base_offset < self.end]
        if not found:
            raise CompactionStopped(f"{self.log.folder}: no segment is left below offset {self.end}")
        following = [*(segment.base_offset for segment in found[1:]), self.end]
        return [
            SegmentSource(segment, next_base_offset=base_offset)
            for segment, base_offset in zip(found, following, strict=True)
        ]

    @staticmethod
    def aborted_transactions(view: LogView, source: SegmentSource) -> Iterator[AbortedTransaction]:
        """Those that may have data in the segment, whichever segment their marker is in.

        As in Kafka, those that ended below the log's start are left out.
        """
        for transaction in view.unlisted_aborted_transactions(source.base_offset, source.next_base_offset):
            if transaction.last_offset >= view.start_offset:
                yield transaction
        for segment in view.segments.from_floor(source.base_offset):
            found = segment.transaction_index.overlapping(view.start_offset, source.next_base_offset)
            yield from found.transactions
            if found.is_complete:
                return

    # What cannot be compacted

    def refuse(self, error: CorruptRecord, _row: int) -> None:
        """Note a damaged batch, which is copied as it is. Any thread may call this, and both passes do."""
        # One more than is reported, to know that there are more.
        if len(self._corrupt) <= _MOST_DAMAGE_REPORTED:
            self._corrupt[str(error)] = None

    def leave(self, broken: SegmentBroken) -> None:
        """Leave the segment as it is."""
        path = broken.source.segment.path(FileKind.LOG)
        self._left.setdefault(broken.source.base_offset, f"{path} stays as it is: {broken}")

    def is_left(self, source: SegmentSource) -> bool:
        return source.base_offset in self._left

    def has_left_below(self, source: SegmentSource) -> bool:
        return any(base_offset < source.base_offset for base_offset in self._left)

    # Progress

    def begin_phase(self, phase: CompactionPhase, bytes_total: int) -> None:
        self._phase = phase
        self._bytes_done = 0
        self._bytes_total = bytes_total
        self.has_read(0)

    def has_read(self, size_bytes: int) -> None:
        """Called for every piece that was read, in the thread that compacts."""
        settings, report = self.settings, self.report
        settings.check_stop()
        if size_bytes:
            settings.on_bytes(size_bytes)
        self._bytes_done += size_bytes
        settings.on_progress(
            CompactionProgress(
                phase=self._phase,
                round=report.rounds,
                bytes_done=self._bytes_done,
                bytes_total=self._bytes_total,
                map_fill=self.map_fill,
                records_read=self._records_read,
                records_kept=self._records_kept,
            )
        )

    def has_judged(self, records_read: int, records_kept: int) -> None:
        self._records_read += records_read
        self._records_kept += records_kept

    def has_written(self, size_bytes: int) -> None:
        self.report.written_bytes += size_bytes
        if size_bytes:
            self.settings.on_bytes(size_bytes)

    def finish_report(self) -> None:
        corrupt = list(self._corrupt)
        if len(corrupt) > _MOST_DAMAGE_REPORTED:
            corrupt[_MOST_DAMAGE_REPORTED:] = [f"more than {_MOST_DAMAGE_REPORTED} batches are damaged"]
        self.report.corrupt_batches = corrupt
        self.report.left_segments = [self._left[base_offset] for base_offset in sorted(self._left)]
