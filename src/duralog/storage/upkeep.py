"""What an open store does in the background: flush, retain, expire producers, write checkpoints.

It also watches for appended records that have expired already, and warns once for each topic.

Each task goes through the logs that are open then. An error in one log does not stop the others: it is raised at the
end, and so reaches `Scheduler.errors`.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial

from duralog.config import BrokerConfig
from duralog.format.filenames import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Clock, Scheduler
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.held_records import HeldRecords, HeldTopic, warn_of
from duralog.storage.log.partition_log import Logs, PartitionLog
from duralog.storage.log.retention import is_retention_chosen

_LONGEST_FLUSH_CHECK_MS = 1000
_SOON_MS = 1
"""Not 0: a command that opens a store briefly runs only what is due at once, and deletes nothing by itself."""
_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)

_CONSEQUENCES = {
    True: "retention will delete them",
    False: "the default retention deletes them while the store is open, and holds them from its next opening on",
}
"""Of appending expired records, by whether the retention was chosen (`duralog.storage.held_records`)."""

_EPOCH = datetime.fromtimestamp(0, UTC)

_logger = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self, directories: LogDirectories, config: BrokerConfig, scheduler: Scheduler, logs: Logs, clock: Clock
    ) -> None:
        self._directories = directories
        self._config = config
        self._scheduler = scheduler
        self._logs = logs
        self._clock = clock
        self._kept: dict[str, dict[TopicPartition, int]] = {}
        self._warned_topics: set[str] = set()
        self.held = HeldRecords(logs(), clock())
        for log in logs().values():
            self.watch(log)

    def keep(self, not_open: Iterable[TopicPartition]) -> None:
        """Keep the entries of partitions in the checkpoints that are offline, or not loaded yet."""
        kept = set(not_open)
        for name in _CHECKPOINTS:
            offsets = self._directories.read_checkpoint(name)
            self._kept[name] = {partition: offset for partition, offset in offsets.items() if partition in kept}

    def take_over(self, log: PartitionLog) -> None:
        """Take care of a log that was loaded later than the others."""
        for offsets in self._kept.values():
            offsets.pop(TopicPartition(log.topic, log.partition), None)
        self.watch(log)

    def watch(self, log: PartitionLog) -> None:
        """Warn when records are appended that have expired already."""
        # Without a reference to the log: a reference cycle would keep the files of a deleted topic open.
        log.on_expired = partial(self._warn_of_expired, TopicPartition(log.topic, log.partition))

    def held_topics(self) -> tuple[HeldTopic, ...]:
        """What the default retention does not delete, because it had expired when the directory was opened."""
        return self.held.topics(self._logs(), self._clock())

    def start(self, apply_retention: Callable[[], None], *, deletes_by_age: bool = True) -> None:
        config = self._config
        if deletes_by_age:
            self._scheduler.after(_SOON_MS, "report of held records", self._warn_of_held)
        later_ms = config.log_initial_task_delay_ms
        for name, work, interval_ms, first_after_ms in (
            ("retention", apply_retention, config.log_retention_check_interval_ms, later_ms),
            # Kafka ignores a topic's `flush.ms` unless the broker's flusher is enabled, too.
            ("flush", self.flush, min(config.log_flush_scheduler_interval_ms, _LONGEST_FLUSH_CHECK_MS), later_ms),
            (
                "checkpoint of recovery points",
                self.checkpoint_recovery_points,
                config.log_flush_offset_checkpoint_interval_ms,
                later_ms,
            ),
            (
                "checkpoint of log starts",
                self.checkpoint_log_starts,
                config.log_flush_start_offset_checkpoint_interval_ms,
                later_ms,
            ),
            (
                "checkpoint of high watermarks",
                self.checkpoint_high_watermarks,
                config.replica_high_watermark_checkpoint_interval_ms,
                config.replica_high_watermark_checkpoint_interval_ms,
            ),
            (
                "expiry of producers",
                self.expire_producers,
                config.producer_id_expiration_check_interval_ms,
                config.producer_id_expiration_check_interval_ms,
            ),
        ):
            self._scheduler.every(interval_ms, name, work, first_after_ms=first_after_ms)

    def flush(self) -> None:
        """Sync the logs whose records have waited for `flush.ms`."""
        now_ms = self._clock()

        def flush_if_due(log: PartitionLog) -> None:
            # Below zero, the clock was set back: do not wait until it is as late again.
            waited_ms = abs(now_ms - log.last_flush_ms)
            if waited_ms >= log.config.flush_ms and log.recovery_point < log.end_offset and not log.in_doubt:
                log.flush()

        self._for_each(flush_if_due)

    def expire_producers(self) -> None:
        self._for_each(lambda log: log.expire_producers())

    def checkpoint(self) -> None:
        """Write all checkpoints."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()

    def checkpoint_recovery_points(self) -> None:
        self._write(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Only those that differ from the base offset of the first segment."""
        self._write(LOG_START_OFFSET_CHECKPOINT, _start_offset_to_write)

    def checkpoint_high_watermarks(self) -> None:
        self._write(HIGH_WATERMARK_CHECKPOINT, lambda log: log.high_watermark)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove deleted partitions from the checkpoints, so that new ones of their names inherit nothing.

        REQUIRES: none of them is open.
        """
        gone = {*partitions}
        self.held.forget(gone)
        for offsets in self._kept.values():
            for partition in gone.intersection(offsets):
                del offsets[partition]
        if any(not gone.isdisjoint(self._directories.last_checkpoint(name)) for name in _CHECKPOINTS):
            self.checkpoint()

    def _warn_of_held(self) -> None:
        warn_of(self._directories.path, self.held_topics())

    def _warn_of_expired(self, partition: TopicPartition, timestamp_ms: int, retention_ms: int) -> None:
        """Called under the log's lock."""
        if partition.topic in self._warned_topics:
            return
        self._warned_topics.add(partition.topic)
        log = self._logs().get(partition)
        is_chosen = log is not None and is_retention_chosen(log.config)
        _logger.warning(
            "%s: appended records of %s, older than retention.ms=%d: %s. To keep them, set retention.ms=-1 for the"
            " topic: duralog topic alter %s --topic %s --config retention.ms=-1",
            partition,
            f"{_EPOCH + timedelta(milliseconds=timestamp_ms):%Y-%m-%dT%H:%M:%SZ}",
            retention_ms,
            _CONSEQUENCES[is_chosen],
            shlex.quote(str(self._directories.path)),
            partition.topic,
        )

    def _write(self, name: str, offset_of: Callable[[PartitionLog], int | None]) -> None:
        def collect() -> dict[TopicPartition, int]:
            offsets = dict(self._kept.get(name, {}))
            for partition, log in self._logs().items():
                offset = offset_of(log)
                if offset is not None:
                    offsets[partition] = offset
            return offsets

        self._directories.write_checkpoint(name, collect)

    def _for_each(self, work: Callable[[PartitionLog], object]) -> None:
        failure: Exception | None = None
        for partition, log in self._logs().items():
            if self._scheduler.is_stopping:
                return
            try:
                work(log)
            except Exception as error:
                # A log that was closed because its topic is deleted is not a failure.
                if self._logs().get(partition) is log:
                    failure = failure or error
        if failure is not None:
            raise failure


def _start_offset_to_write(log: PartitionLog) -> int | None:
    view = log.view
    is_known = view.start_offset == view.segments.first.base_offset and not log.has_left_files
    return None if is_known else view.start_offset
