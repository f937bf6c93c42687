"""Which segments of a shuffled compaction become one, and what the task that rewrites them needs.

Groups are those of the store (`duralog.storage.compaction.rewriting`). They are planned again whenever a segment
cannot be rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.spark.jobs.compaction.groups import GroupToRewrite, SegmentToRewrite
from duralog.spark.jobs.compaction.rows import SegmentMarks, SegmentToRead
from duralog.spark.jobs.compaction.transactions import replay
from duralog.storage.borrowed_partition import Loan
from duralog.storage.compaction.rewriting import Rewriter
from duralog.storage.compaction.run import CompactionRun
from duralog.storage.compaction.transaction_cleaning import TransactionTracker
from duralog.storage.segment.source import SegmentSource


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    sources: Sequence[SegmentSource]
    work: GroupToRewrite


class WaitingGroups:
    """The groups that are still to be rewritten, in order."""

    def __init__(
        self,
        run: CompactionRun,
        sources: Sequence[SegmentSource],
        segments: Sequence[SegmentToRead],
        marks: Sequence[SegmentMarks],
        loan: Loan,
        staging: str,
    ) -> None:
        self.sources = sources
        self.size_bytes = sum(source.size_bytes for source in sources)
        self._run = run
        self._segments = segments
        self._marks = marks
        self._loan = loan
        self._staging = staging
        self._rewriter = Rewriter(run, run.log.view, sources, run.report.first_dirty_offset)
        self._producers = run.log.producers()
        self._done_up_to = -1
        """The base offset of the last segment of the last group that is done."""
        self._numbers = {source.base_offset: number for number, source in enumerate(sources)}

    def finished(self, group: PlannedGroup) -> None:
        self._done_up_to = group.sources[-1].base_offset

    def next(self, count: int) -> list[PlannedGroup]:
        """The next `count` of them. Planned again each time: more segments may have to stay as they are."""
        waiting = [group for group in self._rewriter.groups() if group[0].base_offset > self._done_up_to][:count]
        trackers = self._trackers({group[0].base_offset for group in waiting})
        return [self._group(group, trackers[group[0].base_offset]) for group in waiting]

    def _trackers(self, base_offsets: set[int]) -> dict[int, TransactionTracker]:
        """By the base offsets of these segments: where transactions are at their starts."""
        tracker = TransactionTracker()
        found: dict[int, TransactionTracker] = {}
        for source, segment, marks in zip(self.sources, self._segments, self._marks, strict=True):
            if source.base_offset in base_offsets:
                found[source.base_offset] = tracker.copy()
            tracker.expect(segment.aborted)
            replay(tracker, marks.findings.transactions, is_left=self._run.is_left(source))
        return found

    def _group(self, group: Sequence[SegmentSource], tracker: TransactionTracker) -> PlannedGroup:
        run, config = self._run, self._run.log.config
        work = GroupToRewrite(
            folder=run.log.folder,
            staging=self._staging,
            lock_path=self._loan.lock_path,
            job=self._loan.job,
            config=config,
            segments=[self._segment(source) for source in group],
            tracker=tracker,
            producers=self._producers,
            end=run.end,
            modified_ms=group[-1].modified_ms,
            now_ms=run.now_ms,
            piece_bytes=run.settings.piece_bytes,
        )
        return PlannedGroup(group, work)

    def _segment(self, source: SegmentSource) -> SegmentToRewrite:
        number = self._numbers[source.base_offset]
        return SegmentToRewrite(
            segment=self._segments[number],
            marks=self._marks[number],
            # A deleted value in a segment that stays as it is would come back.
            keep_tombstones=self._run.has_left_below(source),
            keep_legacy_tombstones=self._rewriter.keeps_legacy_tombstones(source),
        )
