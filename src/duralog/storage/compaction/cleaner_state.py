"""What the cleaner shows: what each compacted partition is doing and why, and the metrics of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleanable import DirtyRange
from duralog.storage.compaction.cleaner_history import CleanerHistory
from duralog.storage.compaction.cleaning import Cleaning
from duralog.storage.compaction.report import CompactionProgress, CompactionReport


class Activity(StrEnum):
    IDLE = "idle"
    """There is nothing to do, and `reason` says why."""
    DUE = "due"
    """To be compacted as soon as a thread is free."""
    CLEANING = "cleaning"
    RETRYING = "waiting to retry"
    """The last attempt failed, and `reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A compacted partition, as it is at the moment."""

    topic: str
    partition: int
    activity: Activity
    reason: str
    dirty: DirtyRange | None
    """What is new, how much of it can be compacted, and why not more. None if the log cannot be read."""
    progress: CompactionProgress | None = None
    """Of the running compaction, once it has read a first piece."""
    started_ms: int | None = None
    """When the running compaction started."""
    attempts: int = 0
    """Failures in a row."""
    retry_at_ms: int | None = None
    """The time of the next attempt, after a failure."""
    last_report: CompactionReport | None = None
    """Of the last compaction since the store was opened."""
    last_ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerTotals:
    """The metrics of Kafka's cleaner, under its names. "The last cleanings" are as many as there are threads."""

    max_buffer_utilization_percent: float
    """How full the offset map was, at most, in the last cleanings."""
    cleaner_recopy_percent: float
    """Bytes that the last cleanings wrote, as a share of the bytes they read."""
    max_clean_time_secs: float
    """The duration of the longest of the last cleanings."""
    max_compaction_delay_secs: float
    """The longest time that a record has waited beyond `max.compaction.lag.ms`."""
    uncleanable_partitions_count: int
    """Partitions whose last attempt failed. In Kafka they stay so until a restart; here they are retried."""
    uncleanable_bytes: int
    """The bytes in them that could be compacted."""
    cleanable_bytes: int
    """What could be compacted now, in all logs."""
    max_dirty_percent: float
    """The dirty ratio of the dirtiest log."""
    time_since_last_run_ms: int | None
    """Since a thread last checked for something to compact; None if none has."""
    cleanings: int
    """Completed since the store was opened."""
    failed_cleanings: int
    threads: int
    dead_threads: int = 0
    """Always 0: an error ends a cleaning, and never its thread."""


def state_of(
    partition: TopicPartition,
    dirty: DirtyRange | str,
    *,
    is_in_doubt: bool,
    cleaning: Cleaning | None,
    history: CleanerHistory,
    has_threads: bool,
) -> PartitionState:
    """`dirty` may be the reason why the log cannot be read."""
    known = history.of(partition)
    is_due = not isinstance(dirty, DirtyRange) or dirty.is_eligible
    if cleaning is not None:
        activity, reason = Activity.CLEANING, "it is being compacted"
    elif is_in_doubt:
        activity, reason = Activity.IDLE, "a disk error has left the log in an unknown state: open the directory again"
    elif known.reason is not None and is_due:
        activity, reason = Activity.RETRYING, known.reason
    elif not isinstance(dirty, DirtyRange):
        activity, reason = Activity.IDLE, dirty
    elif (why_not := dirty.why_not()) is not None:
        activity, reason = Activity.IDLE, why_not
        if known.reason is not None:
            reason += f"; the last attempt failed: {known.reason}"
    elif not has_threads:
        activity, reason = Activity.IDLE, "it is due, but background compaction is disabled"
    else:
        activity, reason = Activity.DUE, _why_due(dirty)
    return PartitionState(
        topic=partition.topic,
        partition=partition.partition,
        activity=activity,
        reason=reason,
        dirty=dirty if isinstance(dirty, DirtyRange) else None,
        progress=None if cleaning is None else cleaning.progress,
        started_ms=None if cleaning is None else cleaning.started_ms,
        attempts=known.attempts,
        retry_at_ms=history.retry_at_ms(partition) if activity is Activity.RETRYING else None,
        last_report=known.last_report,
        last_ended_ms=known.last_ended_ms,
    )


def _why_due(dirty: DirtyRange) -> str:
    if dirty.overdue_ms:
        return f"a record has waited {dirty.overdue_ms} ms longer than max.compaction.lag.ms"
    return f"{dirty.dirty_ratio:.1%} of the log is new"


def totals_of(
    states: Sequence[PartitionState], history: CleanerHistory, *, threads: int, time_since_last_run_ms: int | None
) -> CleanerTotals:
    ranges = [state.dirty for state in states if state.dirty is not None]
    failing = [state for state in states if state.attempts and state.activity is Activity.RETRYING]
    latest = history.latest_reports
    read_bytes = sum(report.read_bytes for report in latest)
    return CleanerTotals(
        max_buffer_utilization_percent=100 * max((report.map_fill for report in latest), default=0.0),
        cleaner_recopy_percent=100 * sum(report.written_bytes for report in latest) / max(read_bytes, 1),
        max_clean_time_secs=max((report.seconds for report in latest), default=0.0),
        max_compaction_delay_secs=max((dirty.overdue_ms for dirty in ranges), default=0) / 1000,
        uncleanable_partitions_count=len(failing),
        uncleanable_bytes=sum(state.dirty.cleanable_bytes for state in failing if state.dirty is not None),
        cleanable_bytes=sum(dirty.cleanable_bytes for dirty in ranges),
        max_dirty_percent=100 * max((dirty.dirty_ratio for dirty in ranges), default=0.0),
        time_since_last_run_ms=time_since_last_run_ms,
        cleanings=history.succeeded,
        failed_cleanings=history.failed,
        threads=threads,
    )
