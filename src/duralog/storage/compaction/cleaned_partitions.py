"""What the cleaner knows about its partitions: who compacts them, how far they are compacted, what is dirty.

What must always be true:
- No log is compacted by two threads at the same time (`duralog.storage.compaction.cleaning_claims`).
- The checkpoint is raised after the segments of a round are swapped in, and lowered before the end of a log is
  truncated. Both happen under the log's lock. A crash in between only repeats work.
- Deleting a topic, or removing `compact` from its policy, stops its compactions and waits for their end. Closing the
  store does that to all.

In Kafka: `LogCleanerManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from duralog.errors import DuralogError, StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleanable import DirtyRange, dirty_range, first_dirty_offset
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.compaction.cleaner_history import CleanerHistory
from duralog.storage.compaction.cleaner_state import PartitionState, state_of
from duralog.storage.compaction.cleaning import Cleaning, WaitFor
from duralog.storage.compaction.cleaning_claims import CleaningClaims
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.disk.log_directory import CheckpointFiles
from duralog.storage.log.partition_log import Logs, PartitionLog
from duralog.storage.log.retention import COMPACT, DELETE

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerOwner:
    """What the cleaner has from the store, or from the borrowed partition, that it works for."""

    directory: CheckpointFiles
    logs: Logs
    clock: Clock
    scheduler: Scheduler
    """Its threads are the cleaner's."""
    report_error: Callable[[str, BaseException], None]
    """Called with the name of the task and the error when a compaction in the background fails."""
    write_checkpoints: Callable[[], None]
    """Writes the recovery points and start offsets of all logs."""


class CleanedPartitions:
    """Any thread may call any method."""

    def __init__(self, owner: CleanerOwner, wait: WaitFor, *, latest_reports: int) -> None:
        self.checkpoint = CleanerCheckpoint(owner.directory)
        self.claims = CleaningClaims(owner.logs, owner.clock, wait)
        self.history = CleanerHistory(clock=owner.clock, steady_clock=owner.scheduler.clock, latest=latest_reports)
        self._logs = owner.logs
        self._clock = owner.clock

    def start(self) -> None:
        """Follow the logs that are open now, and correct their checkpoints."""
        for partition, log in self._logs().items():
            self.watch(partition, log)
            self._correct(partition, log)
        self.checkpoint.write()

    def take_over(self, partition: TopicPartition, log: PartitionLog) -> None:
        self.watch(partition, log)
        self._correct(partition, log)
        self.checkpoint.write()

    def compacted_logs(self) -> dict[TopicPartition, PartitionLog]:
        return {partition: log for partition, log in self._logs().items() if COMPACT in log.config.cleanup_policy}

    def dirty_range(self, partition: TopicPartition, log: PartitionLog, *, again: bool = False) -> DirtyRange:
        """With `again`, as if the log had never been compacted."""
        while True:
            view = log.view
            try:
                return dirty_range(
                    view.segments,
                    start_offset=view.start_offset,
                    end_offset=view.end_offset,
                    last_stable_offset=view.last_stable_offset,
                    checkpoint=None if again else self.checkpoint.get(partition),
                    config=log.config,
                    now_ms=self._clock(),
                )
            except StorageError:
                # A segment that was deleted meanwhile does not matter.
                if log.view.segments is view.segments:
                    raise

    def states(self, *, has_threads: bool) -> list[PartitionState]:
        """The state of each compacted partition, by name."""
        return [
            self._state(partition, log, has_threads=has_threads)
            for partition, log in sorted(self.compacted_logs().items())
        ]

    def _state(self, partition: TopicPartition, log: PartitionLog, *, has_threads: bool) -> PartitionState:
        try:
            dirty: DirtyRange | str = self.dirty_range(partition, log)
        except DuralogError as error:
            dirty = str(error)
        return state_of(
            partition,
            dirty,
            is_in_doubt=log.in_doubt,
            cleaning=self.claims.of(partition),
            history=self.history,
            has_threads=has_threads,
        )

    def advance(self, cleaning: Cleaning, end_offset: int) -> None:
        """Raise the checkpoint: the log is compacted up to this offset."""
        with cleaning.log.writers_waiting():
            # Records that were truncated, and written again, are not compacted.
            limit = end_offset if cleaning.cut_at is None else min(end_offset, cleaning.cut_at)
            self.checkpoint.put(cleaning.partition, limit)
        self.checkpoint.write()

    def watch(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Follow the truncations of a log."""
        log.before_cut = lambda offset: self._before_cut(partition, offset)

    def _before_cut(self, partition: TopicPartition, offset: int) -> None:
        """REQUIRES: the log's lock is held."""
        cleaning = self.claims.of(partition)
        if cleaning is not None and (cleaning.end is None or offset < cleaning.end):
            cleaning.cut_at = offset if cleaning.cut_at is None else min(offset, cleaning.cut_at)
            cleaning.stop(f"the log is cut off at offset {offset}")
        self.checkpoint.lower(partition, offset)
        self.checkpoint.write()

    def _correct(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Before the first append: after it, a log that has lost its end may reach beyond the checkpoint again."""
        offset, correction = first_dirty_offset(self.checkpoint.get(partition), log.start_offset, log.end_offset)
        if correction is not None:
            # With both policies, retention often deletes more than was compacted.
            level = logging.INFO if DELETE in log.config.cleanup_policy else logging.WARNING
            _logger.log(level, "%s: compaction begins at offset %d: %s", partition, offset, correction)
            self.checkpoint.put(partition, offset)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self.checkpoint.forget(partitions)
        self.history.forget(partitions)
        self.checkpoint.write()
