"""Compact the logs of a directory.

On threads, one log is compacted after the other, each with all threads. On Spark, a task compacts a partition, or many
tasks a very large one (`duralog.spark.jobs.compact`). A failed partition does not stop the others. Partitions that are
done stay so if the work is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.config.error_text import describe_any
from duralog.config.progress import OnProgress, ignore
from duralog.format.topic_partition import TopicPartition
from duralog.operations.compacted_logs import CompactionMeter, LogsToCompact, chosen_logs
from duralog.operations.opened_store import check_log_directory, immediate_tasks, opened_for_writing
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.compaction.report import CompactionProgress, CompactionReport
from duralog.storage.compaction.settings import LARGEST_MAP_BYTES
from duralog.storage.disk.background import Scheduler
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCompaction:
    """What only a compaction on Spark can do."""

    dry_run: bool = False
    min_dirty_ratio: float | None = None
    """Leave logs alone of which no larger share is new."""
    shuffled: bool | None = None
    """See `duralog.spark.jobs.compact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    logs: LogsToCompact
    roll: bool = False
    """Start new segments first, so that all of a log is compacted."""
    spark: SparkCompaction = SparkCompaction()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    size_bytes: int
    segments: int

    @classmethod
    def of(cls, log: PartitionLog) -> LogSize:
        return cls(size_bytes=log.size_bytes, segments=len(log.segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPartition:
    """The result of one partition: a report, or a failure."""

    partition: TopicPartition
    report: CompactionReport | None = None
    failure: str | None = None
    form: str | None = None
    """How Spark compacted it; None for threads."""
    before: LogSize | None = None
    """Of the whole log, by threads."""
    after: LogSize | None = None


@dataclass(slots=True, kw_only=True)
class CompactionTotals:
    """Sums over partitions. All figures are of what was compacted, or would be."""

    compacted: int = 0
    idle: int = 0
    failed: int = 0
    damaged: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    seconds: float = 0.0

    def add(self, done: CompactedPartition) -> None:
        report = done.report
        if report is None:
            self.failed += 1
        elif not report.rounds:
            self.idle += 1
        else:
            self.compacted += 1
            self.damaged += bool(report.corrupt_batches or report.left_segments)
            self.records_before += report.records_before
            self.records_after += report.records_after
            self.bytes_before += report.bytes_before
            self.bytes_after += report.bytes_after


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    path: str
    partitions: Sequence[CompactedPartition]
    totals: CompactionTotals
    is_dry_run: bool = False
    not_compacted: int | None = None
    """Chosen partitions of topics that are not compacted. Not counted by Spark."""
    has_lost_topics: bool = False
    """A chosen partition is offline, since the metadata of its topic is lost."""

    @property
    def is_well(self) -> bool:
        return not self.totals.failed and not self.totals.damaged and not self.has_lost_topics


def compact(
    request: CompactRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[CompactedPartition], None] = ignore_result,
) -> CompactReport:
    """Compact the chosen logs of compacted topics, however little of them is new. No one may have the directory open.

    `on_partition` is called with each result: on threads when the partition is done, on Spark at the end.
    """
    if isinstance(workers, OnSpark):
        return _compact_on_spark(request, workers, on_progress, on_partition)
    logs = request.logs
    tasks = immediate_tasks()
    check_log_directory(logs.path)
    with opened_for_writing(logs.path, logs.config, scheduler=tasks, on_progress=on_progress) as store:
        began = time.monotonic()
        chosen = chosen_logs(store, logs)
        meter = CompactionMeter(len(chosen.compacted), on_progress)
        run = _Run(store=store, request=request, tasks=tasks, threads=workers.count, meter=meter)
        totals = CompactionTotals()
        done: list[CompactedPartition] = []
        for partition, config in chosen.compacted.items():
            meter.begin(partition)
            result = run.compact(partition, config)
            totals.add(result)
            done.append(result)
            on_partition(result)
        totals.seconds = time.monotonic() - began
        return CompactReport(
            path=logs.path,
            partitions=done,
            totals=totals,
            not_compacted=chosen.not_compacted,
            has_lost_topics=logs.choice.has_lost_topics(store),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    store: Store
    request: CompactRequest
    tasks: Scheduler
    threads: int
    meter: CompactionMeter

    def compact(self, partition: TopicPartition, config: TopicConfig) -> CompactedPartition:
        memory_bytes = self.request.logs.memory_bytes
        if memory_bytes is None:
            # One log at a time: it has the memory of all cleaner threads.
            memory_bytes = min(self.store.config.log_cleaner_dedupe_buffer_size, LARGEST_MAP_BYTES)
        try:
            log = self.store.partition(*partition)
            before = LogSize.of(log)
            log.update_config(config.with_overrides({"file.delete.delay.ms": 0}))
            if self.request.roll:
                log.roll()
            with reports_only():
                report = self.store.compact(
                    *partition,
                    workers=self.threads,
                    memory_bytes=memory_bytes,
                    again=self.request.logs.again,
                    on_progress=self._show,
                )
        except Exception as error:  # Any error: the other partitions are compacted all the same.
            return CompactedPartition(partition=partition, failure=describe_any(error))
        return CompactedPartition(partition=partition, report=report, before=before, after=LogSize.of(log))

    def _show(self, progress: CompactionProgress) -> None:
        self.tasks.run_due()  # Removes old segments at once: there may be no room for the whole log twice.
        self.meter.show(progress)


def _compact_on_spark(
    request: CompactRequest,
    workers: OnSpark,
    on_progress: OnProgress,
    on_partition: Callable[[CompactedPartition], None],
) -> CompactReport:
    from duralog.spark.jobs.compact import compact as run

    logs = request.logs
    report = run(
        workers.session,
        logs.path,
        topics=logs.choice.topics,
        partition=logs.choice.partition,
        topic_config=logs.topic_config,
        memory_bytes=logs.memory_bytes,
        shuffled=request.spark.shuffled,
        again=logs.again,
        roll=request.roll,
        min_dirty_ratio=request.spark.min_dirty_ratio,
        config=logs.config,
        dry_run=request.spark.dry_run,
        on_progress=on_progress,
    )
    totals = CompactionTotals(seconds=report.seconds)
    done = [
        CompactedPartition(partition=found.partition, report=found.report, failure=found.failure, form=found.form.value)
        for found in report.partitions
    ]
    for result in done:
        totals.add(result)
        on_partition(result)
    return CompactReport(path=report.path, partitions=done, totals=totals, is_dry_run=report.is_rehearsal)
