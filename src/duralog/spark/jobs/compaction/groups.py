"""The second pass of a shuffled compaction: a group of segments, rewritten by one task.

The marks of the first pass say which records are superseded, and the driver sends the state of transactions at the
group's start. All else is the compaction of the store, by the same code. The result is in a folder of this attempt, and
not part of the log yet: the driver swaps it in when the task is done. So a task may die, run twice, or be late.

Memory: the marks of a segment (`marks`), a few pieces of 4 MB, and a bit for each offset that a piece spans.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from duralog.columnar.compacting import SurvivalRules, compact_piece
from duralog.columnar.pieces import Piece
from duralog.config import TopicConfig
from duralog.errors import CorruptRecord
from duralog.format.producer_snapshot import ProducerEntry
from duralog.kernels.offset_map import OffsetMap, Superseded
from duralog.scanning.executor import Advance, ignore_progress
from duralog.spark.jobs.compaction.marks import MarksFile
from duralog.spark.jobs.compaction.rows import SegmentMarks, SegmentToRead
from duralog.storage.compaction.batch_verdicts import BatchJudge, Judgement
from duralog.storage.compaction.cleaned_segment import CleanedSegment
from duralog.storage.compaction.report import Tallies
from duralog.storage.compaction.transaction_cleaning import TransactionTracker
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.lent_lock import joined
from duralog.storage.segment.segment_files import segment_options
from duralog.storage.segment.source import SegmentBroken, SegmentSource, batch_bytes

SMALLEST_MAP_BYTES = 72
_MOST_DAMAGE_TOLD = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToRewrite:
    segment: SegmentToRead
    marks: SegmentMarks
    keep_tombstones: bool
    keep_legacy_tombstones: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupToRewrite:
    """What a task needs to rewrite a group."""

    folder: str
    staging: str
    """A folder for what is written. Each attempt makes a folder in it."""
    lock_path: str
    job: str
    config: TopicConfig
    segments: Sequence[SegmentToRewrite]
    tracker: TransactionTracker
    """As it is at the start of the group."""
    producers: Sequence[ProducerEntry]
    end: int
    """The first offset that may not be compacted."""
    modified_ms: int
    """The time that the new files get."""
    now_ms: int
    piece_bytes: int

    @property
    def base_offset(self) -> int:
        return self.segments[0].segment.base_offset

    @property
    def size_bytes(self) -> int:
        return sum(found.segment.size_bytes for found in self.segments)


@dataclass(slots=True)
class RewrittenGroup:
    folder: str
    """With the new files, called `.cleaned`."""
    size_bytes: int = 0
    tallies: Tallies = field(default_factory=Tallies)
    damage: list[CorruptRecord] = field(default_factory=list)
    broken_segment: int | None = None
    """The number of a segment that has to stay as it is: then nothing was written."""
    reason: str = ""


class KnownOffsets(OffsetMap):
    """Marks, with the interface of the map that the second pass expects."""

    def __init__(self, marks: Superseded, latest_offset: int) -> None:
        super().__init__(SMALLEST_MAP_BYTES)
        self._watched = marks
        self.latest_offset = latest_offset


def rewrite_group(group: GroupToRewrite, _: Advance = ignore_progress) -> RewrittenGroup:
    """Write what is left of a group."""
    files = LocalFileSystem()
    with joined(group.lock_path, group.job):
        done = RewrittenGroup(f"{group.staging}/{group.base_offset}-{uuid.uuid4().hex}")
        files.make_folder(done.folder)
        cleaned = CleanedSegment(files, done.folder, group.base_offset, segment_options(group.config))
        try:
            _write(files, group, cleaned, done)
            cleaned.finish(modified_ms=group.modified_ms, created_ms=group.now_ms)
            files.sync_folder(done.folder)
        except SegmentBroken as broken:
            cleaned.discard()
            numbers = {found.segment.base_offset: found.segment.number for found in group.segments}
            done.broken_segment, done.reason = numbers[broken.source.base_offset], str(broken)
        except BaseException:
            cleaned.discard()
            raise
        done.size_bytes = cleaned.size_bytes
        return done


def _write(files: FileSystem, group: GroupToRewrite, cleaned: CleanedSegment, done: RewrittenGroup) -> None:
    def refuse(error: CorruptRecord, _row: int) -> None:
        if len(done.damage) <= _MOST_DAMAGE_TOLD:
            done.damage.append(error)

    for source, piece, judgement, rules in _judged(files, group, done.tallies):
        compacted = compact_piece(piece, judgement.verdicts, rules, on_corrupt=refuse)
        done.tallies.add(compacted)
        cleaned.add_aborted(judgement.kept_aborts)
        if not cleaned.fits(compacted.size_bytes):
            # Compressed again, it may be larger than before.
            raise SegmentBroken(source, "what is left of it does not fit a segment")
        if len(compacted.batches):
            cleaned.append(compacted.buffers, compacted.batches)


def _judged(
    files: FileSystem, group: GroupToRewrite, tallies: Tallies
) -> Iterator[tuple[SegmentSource, Piece, Judgement, SurvivalRules]]:
    judge = BatchJudge(group.tracker, group.producers, end=group.end, round_ms=group.now_ms)
    for found in group.segments:
        source = found.segment.open(files, group.folder, group.config)
        judge.tracker.expect(found.segment.aborted)
        marks = MarksFile(files, found.segment, found.marks)
        source.bad_checksums = found.marks.findings.bad_checksums
        first_offset = source.base_offset
        for piece in source.checked_pieces(piece_bytes=group.piece_bytes):
            tallies.read_bytes += batch_bytes(piece)
            judgement = judge.judge(piece)
            tallies.aborted += judgement.aborted_records
            end_offset = int(piece.batches["last_offset"][-1]) + 1
            rules = SurvivalRules(
                offset_map=KnownOffsets(marks.between(first_offset, end_offset), group.end - 1),
                round_ms=group.now_ms,
                delete_retention_ms=group.config.delete_retention_ms,
                keep_legacy_tombstones=found.keep_legacy_tombstones,
                keep_tombstones=found.keep_tombstones,
            )
            first_offset = end_offset
            yield source, piece, judgement, rules
