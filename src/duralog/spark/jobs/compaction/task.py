"""One partition, compacted by one task of `duralog job compact`, as a store does it.

The partition is borrowed from the driver (`duralog.storage.borrowed_partition`) and compacted by its cleaner: the same
rules, the same files and the same checkpoint as with `store.compact`. A killed task leaves what a killed
store leaves, and its second attempt continues there; one that runs twice finds nothing to do.

Memory: the map of keys, `memory_bytes`, and a few pieces of 4 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.config import BrokerConfig, TopicConfig
from duralog.config.error_text import describe_any
from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.kernels.offset_map import SLOT_BYTES
from duralog.reports.compact import CompactionForm, PartitionCompaction
from duralog.scanning.executor import Advance
from duralog.storage.borrowed_partition import BorrowedPartition, Loan, borrow
from duralog.storage.compaction.cleanable import DirtyRange
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.compaction.preview import ExplainSettings
from duralog.storage.compaction.report import CompactionPhase, CompactionProgress, CompactionReport
from duralog.storage.compaction.settings import CleanerSettings
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import FollowedCheckpoint
from duralog.storage.live_explanation import explain_live
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """How each partition is compacted."""

    now_ms: int
    """The time of the whole job, so that a second attempt does the same as the first."""
    memory_bytes: int
    """Of the map of keys."""
    again: bool = False
    roll: bool = False
    min_dirty_ratio: float | None = None
    """A log of which no larger share is new is skipped; None: every log is compacted."""
    workers: int = 1
    """Threads of a task."""
    may_take_rounds: bool = True
    """Whether keys that do not fit into the map mean several rounds. Otherwise that is a `KeysDoNotFit`."""


class KeysDoNotFit(DuralogError):
    """The partition has more new keys than the map takes. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactWork:
    loan: Loan
    settings: CompactSettings
    size_bytes: int


def compact_in_task(work: CompactWork) -> PartitionCompaction | None:
    """The result for the partition; None if it is too large for one task. A failure is part of it, and not raised."""
    partition = work.loan.partition
    try:
        return PartitionCompaction(
            partition=partition, form=CompactionForm.ONE_TASK, report=_compact(work.loan, work.settings)
        )
    except KeysDoNotFit:
        return None
    except Exception as error:  # An error of any kind must not stop the other partitions.
        return PartitionCompaction(partition=partition, form=CompactionForm.ONE_TASK, failure=describe_any(error))


def _compact(loan: Loan, settings: CompactSettings) -> CompactionReport:
    with borrow(loan, clock=lambda: settings.now_ms) as borrowed, reports_only():
        return compact_borrowed(borrowed, settings)


def compact_borrowed(borrowed: BorrowedPartition, settings: CompactSettings) -> CompactionReport:
    """Compact it, unless too little is new; a note in the report says so."""
    partition, log = borrowed.partition, borrowed.log
    if settings.roll:
        log.roll()
    for state in borrowed.cleaner.states():
        if state.dirty is not None and _is_too_little(state.dirty, settings):
            return _idle(partition, state.dirty.first_dirty_offset, _too_little_note(state.dirty, settings))
    cleaner = borrowed.cleaner
    slots = settings.memory_bytes // SLOT_BYTES
    capacity = int(slots * cleaner.settings.compaction.load_factor)

    def show(progress: CompactionProgress) -> None:
        borrowed.run_due()  # Files of old segments are deleted at once: the disk may not hold the whole log twice.
        is_mapped = progress.phase is CompactionPhase.REWRITING and progress.round == 1
        if is_mapped and not settings.may_take_rounds and round(progress.map_fill * slots) >= capacity:
            raise KeysDoNotFit(f"{partition}: its keys do not fit into a map of {settings.memory_bytes} bytes")

    compaction = cleaner.settings.on_request(
        workers=settings.workers, memory_bytes=settings.memory_bytes, on_progress=show
    )
    return cleaner.compact(partition, log, compaction, again=settings.again)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What holds for all partitions of a dry run."""

    path: str
    broker_config: BrokerConfig
    settings: CompactSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewWork:
    partition: TopicPartition
    topic_config: TopicConfig
    size_bytes: int


def preview_in_task(preview: Preview, works: Sequence[PreviewWork], _: Advance) -> list[PartitionCompaction]:
    """What a compaction would do. Nothing is changed, and another process may have the directory open."""
    cleaned = FollowedCheckpoint(LocalFileSystem(), preview.path, CLEANER_OFFSET_CHECKPOINT)
    with Store(preview.path, config=preview.broker_config, read_only=True) as store:
        return [_preview(store, cleaned, preview.settings, work) for work in works]


def _preview(
    store: Store, cleaned: FollowedCheckpoint, wanted: CompactSettings, work: PreviewWork
) -> PartitionCompaction:
    partition = work.partition
    settings = ExplainSettings(
        now_ms=wanted.now_ms,
        compaction=CleanerSettings.of(store.config).on_request(memory_bytes=wanted.memory_bytes),
        again=wanted.again,
    )
    try:
        explanation = explain_live(store, partition, work.topic_config, cleaned, settings)
    except Exception as error:
        return PartitionCompaction(partition=partition, form=CompactionForm.ONE_TASK, failure=describe_any(error))
    is_small = explanation.map is None or (explanation.map.is_complete and explanation.map.rounds == 1)
    form = CompactionForm.ONE_TASK if is_small or wanted.may_take_rounds else CompactionForm.SHUFFLED
    report = explanation.report
    dirty = explanation.dirty
    if report is None or _is_too_little(dirty, wanted):
        note = _too_little_note(dirty, wanted) if report is not None else dirty.why_not()
        report = _idle(partition, dirty.first_dirty_offset, note or "")
    elif not is_small:
        report.notes.append("the keys do not all fit into the map: these figures are of those that do")
    return PartitionCompaction(partition=partition, form=form, report=report)


def _is_too_little(dirty: DirtyRange, settings: CompactSettings) -> bool:
    return settings.min_dirty_ratio is not None and dirty.dirty_ratio <= settings.min_dirty_ratio


def _too_little_note(dirty: DirtyRange, settings: CompactSettings) -> str:
    return f"{dirty.dirty_ratio:.1%} of the log is new, this job compacts above {settings.min_dirty_ratio:.1%}"


def _idle(partition: TopicPartition, first_dirty_offset: int, note: str) -> CompactionReport:
    return CompactionReport(
        topic=partition.topic,
        partition=partition.partition,
        first_dirty_offset=first_dirty_offset,
        end=first_dirty_offset,
        end_offset=first_dirty_offset,
        notes=[note],
    )
