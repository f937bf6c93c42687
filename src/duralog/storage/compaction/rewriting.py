"""The second pass of a compaction: what survives of the segments, group by group.

Pieces are read and judged in order, by one thread at a time. Several threads can compact them; the results stay in
order.
A segment that turns out to be broken stays as it is: its group is started again without it.

A group is neighbours that become one segment. Compaction makes segments smaller; so that a log does not end up as many
tiny ones, neighbours that fit into one segment before they are compacted are written into one. Their size before
counts, since the result is not known yet: log, indexes and range of offsets all have to fit. A segment that is too
large by itself is a group of its own. In Kafka: `Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain, dropwhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.compacting import CompactedPiece, SurvivalRules, compact_piece
from duralog.columnar.pieces import Piece
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from duralog.storage.compaction.batch_verdicts import BatchJudge, Judgement
from duralog.storage.compaction.report import Tallies
from duralog.storage.compaction.run import CompactionRun
from duralog.storage.compaction.transaction_cleaning import TransactionTracker
from duralog.storage.log.view import LogView
from duralog.storage.segment.source import SegmentBroken, SegmentSource, batch_bytes

_INT32_MAX = 2**31 - 1


class RewrittenPiece(NamedTuple):
    source: SegmentSource
    piece: Piece
    verdicts: NDArray[np.int8]
    kept_aborts: list[AbortedTransaction]
    compacted: CompactedPiece


class _Judged(NamedTuple):
    source: SegmentSource
    piece: Piece
    judgement: Judgement
    rules: SurvivalRules


class Rewriter:
    """The second pass of one round. Take the groups in order, and iterate each to its end."""

    def __init__(
        self, run: CompactionRun, view: LogView, sources: Sequence[SegmentSource], first_dirty_offset: int
    ) -> None:
        """REQUIRES: the first pass has filled the map."""
        self._run = run
        self._view = view
        self._config = run.log.config
        self._sources = [source for source in sources if source.base_offset <= run.offset_map.latest_offset]
        clean = [source for source in self._sources if source.base_offset < first_dirty_offset]
        self._legacy_horizon_ms = clean[-1].modified_ms - self._config.delete_retention_ms if clean else 0
        self._judge = BatchJudge(TransactionTracker(), run.log.producers(), end=run.end, round_ms=run.now_ms)
        following = [*(source.base_offset for source in self._sources[1:]), run.end]
        self._extents = {
            source.base_offset: _extent(source, base_offset - 1)
            for source, base_offset in zip(self._sources, following, strict=True)
        }

    @property
    def sources(self) -> Sequence[SegmentSource]:
        return self._sources

    def groups(self) -> list[list[SegmentSource]]:
        """The segments that become one, as far as is known; without those that stay as they are."""
        return [group for group in self._planned(self._sources) if not self._run.is_left(group[0])]

    def keeps_legacy_tombstones(self, source: SegmentSource) -> bool:
        """Whether the segment is too young to lose tombstones of formats v0 and v1, which have no delete horizon."""
        return source.modified_ms > self._legacy_horizon_ms

    def __iter__(self) -> Iterator[list[SegmentSource]]:
        """The groups. If a segment of one turns out to be broken, new groups are made of the rest."""
        waiting = deque(self._planned(self._sources))
        while waiting:
            group = self._without_gone(waiting.popleft())
            if not group:
                continue
            if self._run.is_left(group[0]):
                self._pass_over(group[0])
                continue
            tracker = self._judge.tracker.copy()
            yield group
            if any(self._run.is_left(source) for source in group):
                self._judge.tracker = tracker
                waiting = deque(self._planned([*group, *chain.from_iterable(waiting)]))

    def rewrite(self, group: Sequence[SegmentSource], tallies: Tallies) -> Generator[RewrittenPiece, None, None]:
        """What is left of the group, piece by piece.

        Raises `SegmentBroken` if a segment is broken: pass it to `run.leave`, and the rest comes as new groups.
        """

        def compact(judged: _Judged) -> CompactedPiece:
            return compact_piece(judged.piece, judged.judgement.verdicts, judged.rules, on_corrupt=self._run.refuse)

        with closing(self._run.work.map(compact, self._judged(group))) as results:
            for (source, piece, judgement, _), compacted in results:
                self._run.has_read(batch_bytes(piece))
                tallies.read_bytes += batch_bytes(piece)
                tallies.add(compacted)
                verdicts, kept_aborts, aborted_records = judgement
                tallies.aborted += aborted_records
                self._run.has_judged(compacted.records_read, compacted.records_kept)
                yield RewrittenPiece(source, piece, verdicts, kept_aborts, compacted)

    def _judged(self, group: Sequence[SegmentSource]) -> Iterator[_Judged]:
        run = self._run
        for source in group:
            self._judge.tracker.expect(run.aborted_transactions(self._view, source))
            rules = SurvivalRules(
                offset_map=run.offset_map,
                round_ms=run.now_ms,
                delete_retention_ms=self._config.delete_retention_ms,
                keep_legacy_tombstones=self.keeps_legacy_tombstones(source),
                # Otherwise a value in a segment that stays as it is would come back.
                keep_tombstones=run.has_left_below(source),
            )
            for piece in source.checked_pieces(piece_bytes=run.settings.piece_bytes):
                yield _Judged(source, piece, self._judge.judge(piece), rules)

    def _without_gone(self, group: list[SegmentSource]) -> list[SegmentSource]:
        """Without segments that retention has deleted from the front of the log since the round began.

        If the round were repeated for them, a log that loses a segment in every round would never be compacted.
        """
        there = set(map(id, self._run.log.view.segments))
        return list(dropwhile(lambda source: id(source.segment) not in there, group))

    def _pass_over(self, source: SegmentSource) -> None:
        """Track the transactions of a segment that stays as it is."""
        tracker = self._judge.tracker
        tracker.expect(self._run.aborted_transactions(self._view, source))
        with suppress(SegmentBroken):
            for piece in source.pieces(check_crc=False):
                self._run.has_read(0)
                tracker.take(piece)
        tracker.lose_sight()

    def _planned(self, sources: Sequence[SegmentSource]) -> list[list[SegmentSource]]:
        """Each segment that stays as it is is a group by itself."""
        planned: list[list[SegmentSource]] = []
        run: list[SegmentSource] = []

        def end_run() -> None:
            place = 0
            for count in group_segments(
                [self._extents[source.base_offset] for source in run],
                segment_bytes=self._config.segment_bytes,
                index_bytes=self._config.segment_index_bytes,
            ):
                planned.append(run[place : place + count])
                place += count
            run.clear()

        for source in sources:
            if self._run.is_left(source):
                end_run()
                planned.append([source])
            else:
                run.append(source)
        end_run()
        return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExtent:
    """What a segment takes up."""

    base_offset: int
    last_offset: int
    """The largest that it could hold: one below the next segment, or below the end of what may be compacted."""
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(segments: Sequence[SegmentExtent], *, segment_bytes: int, index_bytes: int) -> list[int]:
    """How many segments each group has, from the first to the last. REQUIRES: base offsets rise."""
    groups: list[int] = []
    place = 0
    while place < len(segments):
        count = _fitting(segments[place:], segment_bytes, index_bytes)
        groups.append(count)
        place += count
    return groups


def _fitting(segments: Sequence[SegmentExtent], segment_bytes: int, index_bytes: int) -> int:
    """How many from the first on fit together; one at least."""
    first = segments[0]
    log, offsets, times = first.log_bytes, first.offset_index_bytes, first.time_index_bytes
    for count, segment in enumerate(segments[1:], start=1):
        log += segment.log_bytes
        offsets += segment.offset_index_bytes
        times += segment.time_index_bytes
        # An empty segment has no offset that could be too far away. If the offsets that it might hold counted, a log
        # that skips offsets would keep an empty segment for every 2^31 of them.
        is_far = segment.log_bytes > 0 and segment.last_offset - first.base_offset > _INT32_MAX
        if log > segment_bytes or offsets > index_bytes or times > index_bytes or is_far:
            return count
    return len(segments)


def _extent(source: SegmentSource, last_offset: int) -> SegmentExtent:
    segment = source.segment
    return SegmentExtent(
        base_offset=source.base_offset,
        last_offset=last_offset,
        log_bytes=source.size_bytes,
        offset_index_bytes=segment.offset_index.entry_count * OFFSET_INDEX_ENTRY.size,
        time_index_bytes=segment.time_index.entry_count * TIME_INDEX_ENTRY.size,
    )
