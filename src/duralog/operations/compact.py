"""Compact the logs of a directory.

On threads, one log is compacted after the other, each with all threads. On Spark, a task compacts a partition, or many
tasks a very large one (`duralog.spark.jobs.compact`). A failed partition does not stop the others. Partitions that are
done stay so if the work is interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.config.error_text import describe_any
from duralog.config.progress import OnProgress, ignore
from duralog.format.topic_partition import TopicPartition
from duralog.operations.compacted_logs import CompactionMeter, LogsToCompact, chosen_logs
from duralog.operations.opened_store import check_log_directory, immediate_tasks, opened_for_writing
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.reports.compact import CompactReport, LogSize, PartitionCompaction
from duralog.storage.compaction.cleaner import reports_only
from duralog.storage.compaction.report import CompactionProgress
from duralog.storage.compaction.settings import LARGEST_MAP_BYTES
from duralog.storage.disk.background import Scheduler
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCompaction:
    """What only a compaction on Spark can do."""

    dry_run: bool = False
    min_dirty_ratio: float | None = None
    """Skip logs whose share of new bytes is not larger than this."""
    shuffled: bool | None = None
    """See `duralog.spark.jobs.compact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    logs: LogsToCompact
    roll: bool = False
    """Start new segments first, so that all of a log is compacted."""
    spark: SparkCompaction = SparkCompaction()


def compact(
    request: CompactRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[PartitionCompaction], None] = ignore_result,
) -> CompactReport:
    """Compact the chosen logs of compacted topics, even if little of them is new. No other process may have the
    directory open.

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
        done: list[PartitionCompaction] = []

        def add(result: PartitionCompaction) -> None:
            done.append(result)
            on_partition(result)

        for partition, reason in chosen.offline.items():
            add(PartitionCompaction(partition=partition, failure=reason))
        for partition, config in chosen.compacted.items():
            meter.begin(partition)
            add(run.compact(partition, config))
        return CompactReport(
            path=logs.path,
            partitions=sorted(done, key=lambda result: result.partition),
            seconds=time.monotonic() - began,
            not_compacted=chosen.not_compacted,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    store: Store
    request: CompactRequest
    tasks: Scheduler
    threads: int
    meter: CompactionMeter

    def compact(self, partition: TopicPartition, config: TopicConfig) -> PartitionCompaction:
        memory_bytes = self.request.logs.memory_bytes
        if memory_bytes is None:
            # One log at a time: it has the memory of all cleaner threads.
            memory_bytes = min(self.store.config.log_cleaner_dedupe_buffer_size, LARGEST_MAP_BYTES)
        try:
            log = self.store.partition(*partition)
            before = _size_of(log)
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
        except Exception as error:  # Any error: the other partitions are still compacted.
            return PartitionCompaction(partition=partition, failure=describe_any(error))
        return PartitionCompaction(partition=partition, report=report, before=before, after=_size_of(log))

    def _show(self, progress: CompactionProgress) -> None:
        self.tasks.run_due()  # Removes old segments at once: the disk may not have room for the log twice.
        self.meter.show(progress)


def _size_of(log: PartitionLog) -> LogSize:
    return LogSize(size_bytes=log.size_bytes, segments=len(log.segments))


def _compact_on_spark(
    request: CompactRequest,
    workers: OnSpark,
    on_progress: OnProgress,
    on_partition: Callable[[PartitionCompaction], None],
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
    for result in report.partitions:
        on_partition(result)
    return report
