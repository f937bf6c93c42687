"""One very large partition, compacted by many tasks: the shuffled form of `duralog job compact`.

The driver borrows the partition and keeps it open; tasks only read its segments, and write into a staging folder. A
compaction in this form has one round, for any number of keys:

1. Keys are shuffled (`keys`): the result is which records of each segment are superseded.
2. The driver plans which segments become one, as the store does, and the state of transactions at each group's start.
3. Each group is rewritten by one task (`groups`), and the driver swaps the groups in, in order, as the store does. Some
   groups at a time: no more than these are on disk twice.

If something dies, what tasks have written is not part of the log, and is removed when the partition is opened next.
What the driver has swapped in stays, and each group is old or new. The checkpoint is raised at the end, so the next
compaction does the rest.

The result is that of the store's compaction with a map that has room for all keys, byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from duralog.config.error_text import describe_any
from duralog.errors import DuralogError, StorageError
from duralog.format.filenames import FileState, SegmentFile
from duralog.kernels.offset_map import OffsetMap
from duralog.reports.compact import CompactionForm, PartitionCompaction
from duralog.scanning.executor import Advance
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.compaction.frames import KeyTasks, shuffle_keys
from duralog.spark.jobs.compaction.group_plan import WaitingGroups
from duralog.spark.jobs.compaction.groups import SMALLEST_MAP_BYTES, GroupToRewrite, RewrittenGroup, rewrite_group
from duralog.spark.jobs.compaction.marks import SHARE_ROW_BYTES, has_bits, mark_bytes
from duralog.spark.jobs.compaction.rows import KeyShuffle, SegmentMarks, SegmentToRead
from duralog.spark.jobs.compaction.task import CompactWork, compact_borrowed, compact_in_task
from duralog.storage.borrowed_partition import Loan, borrow
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.compaction.compact import extent_below
from duralog.storage.compaction.ordered_work import OrderedWork
from duralog.storage.compaction.report import CompactionPhase, CompactionReport
from duralog.storage.compaction.run import CompactionRun
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.leftovers import STAGING_FOLDER
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import KINDS, SegmentFiles, segment_options
from duralog.storage.segment.source import SegmentBroken, SegmentSource

_GROUPS_PER_CORE = 4
"""How many groups for each core are rewritten before they are swapped in."""


class NotInThisForm(DuralogError):
    """The offsets of the log do not rise from record to record, so a mark would not mean one record."""


class Crew(Protocol):
    """Runs the tasks. Tests run them in this process."""

    @property
    def groups_at_once(self) -> int:
        """How many groups are rewritten before they are swapped in."""

    def shuffle_keys(self, tasks: KeyTasks) -> list[SegmentMarks]:
        """All steps of the first pass. Returns what is known of each segment, in their order."""

    def rewrite(self, groups: Sequence[GroupToRewrite]) -> list[RewrittenGroup]: ...


class SparkCrew:
    def __init__(self, executor: SparkExecutor, name: str) -> None:
        self._executor = executor
        self._name = name

    @property
    def groups_at_once(self) -> int:
        return _GROUPS_PER_CORE * self._executor.parallelism

    def shuffle_keys(self, tasks: KeyTasks) -> list[SegmentMarks]:
        return shuffle_keys(self._executor, tasks, name=f"{self._name}: keys")

    def rewrite(self, groups: Sequence[GroupToRewrite]) -> list[RewrittenGroup]:
        return self._executor.run(groups, rewrite_group, weight=lambda group: group.size_bytes, name=self._name)


def compact_shuffled(executor: SparkExecutor, work: CompactWork) -> PartitionCompaction:
    """What became of the partition. A failure is part of the result and not raised."""
    loan, settings = work.loan, work.settings
    name = f"compact {loan.partition}"
    compaction = ShuffledCompaction(loan, SparkCrew(executor, name))
    try:
        with (
            borrow(loan, clock=lambda: settings.now_ms, compact_log=compaction.compact_log) as borrowed,
            reports_only(),
        ):
            report = compact_borrowed(borrowed, settings)
    except NotInThisForm:
        with_rounds = replace(work, settings=replace(settings, may_take_rounds=True))
        (done,) = executor.run([with_rounds], _compact_with_rounds, name=name)
        return done
    except Exception as error:  # An error of any kind must not stop the other partitions.
        return PartitionCompaction(partition=loan.partition, form=CompactionForm.SHUFFLED, failure=describe_any(error))
    return PartitionCompaction(partition=loan.partition, form=CompactionForm.SHUFFLED, report=report)


def _compact_with_rounds(work: CompactWork, _: Advance) -> PartitionCompaction:
    done = compact_in_task(work)
    assert done is not None, "no log is too large for a compaction in rounds"
    return done


class ShuffledCompaction:
    """One compaction of one log."""

    def __init__(self, loan: Loan, crew: Crew) -> None:
        self._loan = loan
        self._crew = crew

    def compact_log(
        self, log: PartitionLog, *, first_dirty_offset: int, end: int, now_ms: int, settings: CompactionSettings
    ) -> CompactionReport:
        """Replaces `storage.compaction.compact.compact_log`. Its threads and maps are not used: tasks have theirs."""
        began = time.perf_counter()
        settings = replace(settings, make_map=lambda _memory_bytes, factor: OffsetMap(SMALLEST_MAP_BYTES, factor))
        with log.being_compacted() as files:
            run = CompactionRun(
                log, settings, OrderedWork(1), first_dirty_offset=first_dirty_offset, end=end, now_ms=now_ms
            )
            staging = f"{log.folder}/{STAGING_FOLDER}"
            files.remove_folder(staging)
            files.make_folder(staging)
            try:
                self._compact(run, files, staging)
            finally:
                # A cancelled task may still write there: then the folder is removed when the log is opened next.
                with suppress(StorageError):
                    files.remove_folder(staging)
            settings.on_round(run.end)
            run.report.seconds = time.perf_counter() - began
            return run.report

    def _compact(self, run: CompactionRun, files: FileSystem, staging: str) -> None:
        log, report = run.log, run.report
        log.flush(run.end)
        before = log.view
        report.rounds = 1
        sources = run.sources(before)
        run.offset_map.reach(run.end - 1)
        began = time.perf_counter()
        marks, segments = self._shuffle_keys(run, sources, staging)
        report.map_seconds = time.perf_counter() - began
        began = time.perf_counter()
        report.begin_round()
        self._rewrite(run, files, WaitingGroups(run, sources, segments, marks, self._loan, staging))
        report.rewrite_seconds = time.perf_counter() - began
        report.end_offset = run.end
        report.segments_before, report.bytes_before = extent_below(before, run.end)
        report.segments_after, report.bytes_after = extent_below(log.view, run.end)
        run.finish_report()

    def _shuffle_keys(
        self, run: CompactionRun, sources: Sequence[SegmentSource], staging: str
    ) -> tuple[list[SegmentMarks], list[SegmentToRead]]:
        report, settings = run.report, run.settings
        segments = [_to_read(run, number, source) for number, source in enumerate(sources)]
        # A record takes an offset and two bytes. One that is compressed even better costs its share more memory.
        most_records = min(run.end - sources[0].base_offset, sum(source.size_bytes for source in sources) // 2)
        shuffle = KeyShuffle(
            folder=run.log.folder,
            config=run.log.config,
            first_dirty_offset=report.first_dirty_offset,
            memory_bytes=settings.memory_bytes,
            load_factor=settings.load_factor,
            piece_bytes=settings.piece_bytes,
            shares=max(1, -(-most_records * SHARE_ROW_BYTES // settings.memory_bytes)),
            mark_tasks=_mark_tasks(segments, settings.memory_bytes),
            staging=staging,
        )
        run.begin_phase(CompactionPhase.MAPPING, sum(source.size_bytes for source in sources))
        tasks = KeyTasks(shuffle=shuffle, segments=segments, lock_path=self._loan.lock_path, job=self._loan.job)
        marks = self._crew.shuffle_keys(tasks)
        for source, found in zip(sources, marks, strict=True):
            findings = found.findings
            if findings.disorder is not None:
                raise NotInThisForm(findings.disorder)
            report.map_records += findings.new_records
            report.map_bytes += findings.new_bytes
            for error in findings.damage:
                run.refuse(error, 0)
            if findings.broken is not None:
                run.leave(SegmentBroken(source, findings.broken))
        return marks, segments

    def _rewrite(self, run: CompactionRun, files: FileSystem, groups: WaitingGroups) -> None:
        run.begin_phase(CompactionPhase.REWRITING, groups.size_bytes)
        while waiting := groups.next(self._crew.groups_at_once):
            done = self._crew.rewrite([found.work for found in waiting])
            for group, rewritten in zip(waiting, done, strict=True):
                for error in rewritten.damage:
                    run.refuse(error, 0)
                if rewritten.broken_segment is not None:
                    # What follows was judged before this was known, and is done again.
                    run.leave(SegmentBroken(groups.sources[rewritten.broken_segment], rewritten.reason))
                    break
                _swap_in(run, files, group.sources, rewritten)
                run.report.add(rewritten.tallies)
                run.has_judged(rewritten.tallies.records_read, rewritten.tallies.records_kept)
                run.has_read(group.work.size_bytes)
                groups.finished(group)


def _to_read(run: CompactionRun, number: int, source: SegmentSource) -> SegmentToRead:
    first_dirty_offset = run.report.first_dirty_offset
    new_from = source.size_bytes
    if source.next_base_offset > first_dirty_offset:
        new_from = source.segment.offset_index.lookup(first_dirty_offset).position
    return SegmentToRead(
        number=number,
        base_offset=source.base_offset,
        next_base_offset=source.next_base_offset,
        size_bytes=source.size_bytes,
        new_from=new_from,
        aborted=tuple(run.aborted_transactions(run.log.view, source)),
    )


def _mark_tasks(segments: Sequence[SegmentToRead], memory_bytes: int) -> tuple[int, ...]:
    """Neighbours share a task, as long as their marks fit into its memory."""
    tasks: list[int] = []
    task, room = -1, 0
    for segment in segments:
        # As bits, or eight bytes for each record of at least eight bytes.
        size = mark_bytes(segment) if has_bits(segment) else segment.size_bytes
        if task < 0 or room < size:
            task, room = task + 1, memory_bytes
        tasks.append(task)
        room -= size
    return tuple(tasks)


def _swap_in(run: CompactionRun, files: FileSystem, group: Sequence[SegmentSource], rewritten: RewrittenGroup) -> None:
    """Swap the new segment in for the old ones, by the same steps as the store."""
    log, base_offset = run.log, group[0].base_offset
    names = [SegmentFile(base_offset, kind, FileState.CLEANED).name for kind in KINDS]
    segment = Segment(
        SegmentFiles(files, log.folder, base_offset, state=FileState.CLEANED),
        size_bytes=rewritten.size_bytes,
        created_ms=run.now_ms,
        options=segment_options(log.config),
    )
    try:
        for name in names:
            if files.exists(f"{rewritten.folder}/{name}"):
                files.rename(f"{rewritten.folder}/{name}", f"{log.folder}/{name}")
        files.sync_folder(log.folder)
        log.swap_in(group, segment, run.settings.check_stop)
    except BaseException:
        if segment.state is FileState.CLEANED:
            for name in names:
                files.remove(f"{log.folder}/{name}")
        raise
    run.has_written(rewritten.size_bytes)
