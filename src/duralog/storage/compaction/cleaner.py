"""The cleaner: threads that compact the logs which need it most.

A thread checks all compacted logs, takes the one with the highest dirty ratio of those that are due
(`duralog.storage.compaction.cleanable`), compacts it, and checks again. When none is due it sleeps for
`log.cleaner.backoff.ms`.

What must always be true:
- A failed compaction does not stop the others. It is retried later (`duralog.storage.compaction.cleaner_history`), and
  `states` shows why it failed. No error of a compaction ends a thread.
- Before offsets go missing, the recovery point after them and the start offset of the log are on disk. Above the
  recovery point, recovery takes missing offsets for a loss unless it knows that the log was compacted: the topic's
  policy may have changed by then. Records below the start offset are not compacted: if a crash brought them back, the
  tombstones that came after them would be missing.

Kafka's cleaner also does the retention of compacted logs; here that is a task of its own. It may delete segments that
are about to be compacted. Those of later groups are skipped. If it deletes segments of the group that is being written,
the compaction notices before it swaps the group in, and is repeated. Retention does not delete what a compaction has
swapped in for the segments that it checked (`duralog.storage.log.log_retention`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.kernels.offset_map import MakeMap
from duralog.storage.compaction.cleanable import DirtyRange
from duralog.storage.compaction.cleaned_partitions import CleanedPartitions, CleanerOwner
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.compaction.cleaner_state import CleanerTotals, PartitionState, totals_of
from duralog.storage.compaction.cleaning import Cleaning, CompactLog, WaitFor, wait_for
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.kept_maps import KeptMaps
from duralog.storage.compaction.report import CompactionProgress, CompactionReport, CompactionStopped, summary
from duralog.storage.compaction.settings import CleanerSettings, CompactionSettings
from duralog.storage.compaction.throttle import Throttle
from duralog.storage.disk.background import Clock, steady_clock_ms
from duralog.storage.disk.stoppable_lock import stopped_by
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import COMPACT

_TASK = "compaction"
_MOST_REPETITIONS = 5

_logger = logging.getLogger(__name__)


class Cleaner:
    """Compacts the logs of one directory. Any thread may call any method. In Kafka: `LogCleaner`."""

    def __init__(
        self,
        owner: CleanerOwner,
        config: BrokerConfig,
        *,
        compact_log: CompactLog = compact_log,
        wait: WaitFor = wait_for,
        steady_clock: Clock = steady_clock_ms,
    ) -> None:
        """`steady_clock` advances while `wait` waits. The scheduler's clock may stand still."""
        self.settings = CleanerSettings.of(config)
        self._clock = owner.clock
        self._scheduler = owner.scheduler
        self._report_error = owner.report_error
        self._write_checkpoints = owner.write_checkpoints
        self._compact_log = compact_log
        self._partitions = CleanedPartitions(owner, wait, latest_reports=self.settings.threads)
        self._claims = self._partitions.claims
        self._history = self._partitions.history
        self._steady_clock = steady_clock
        self._throttle = Throttle(self.settings.bytes_per_second, steady_clock)
        self._maps = KeptMaps()
        self._is_started = False
        self._row = 0
        self._last_run: int | None = None

    # The threads

    def start(self) -> None:
        """Start to compact in the background, if `log.cleaner.enable` is set."""
        self._partitions.start()
        if self.settings.is_enabled:
            self._is_started = True
            self._begin_row()

    def stop(self) -> None:
        """Stop all compactions, and return when none is running."""
        self._claims.stop_all("the store is closed")
        self._scheduler.stop()
        self._maps.drop()

    def wake(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Check for logs to compact now, without waiting for the backoff. These have changed: retry them at once."""
        for partition in partitions:
            self._history.forgive(partition)
        if self._is_started:
            self._scheduler.after(0, _TASK, self._clean_all)

    def follow(self, config: BrokerConfig) -> None:
        """Use other configs from now on. A running compaction keeps its share of memory until its end."""
        settings = CleanerSettings.of(config)
        if settings == self.settings:
            return
        before, self.settings = self.settings, settings
        if settings.bytes_per_second != before.bytes_per_second:
            self._throttle = Throttle(settings.bytes_per_second, self._steady_clock)
            self._claims.hurry()
        self._history.keep_latest(settings.threads)
        if self._is_started:
            self._scheduler.set_threads(settings.threads)
            self._begin_row()

    def _begin_row(self) -> None:
        """Schedule a series of turns for every thread, at once and then after each pause. Older series end."""
        self._row += 1
        for _ in range(self.settings.threads):
            self._scheduler.after(0, _TASK, partial(self._turn, self._row))

    def _turn(self, row: int) -> None:
        if row != self._row:
            return
        pause_ms = self.settings.backoff_ms
        try:
            if self.clean_next():
                pause_ms = 0
        finally:
            self._scheduler.after(pause_ms, _TASK, partial(self._turn, row))

    def _clean_all(self) -> None:
        while self.clean_next():
            pass

    def clean_next(self) -> bool:
        """Compact the log that needs it most, in this thread. Returns whether there was one."""
        self._last_run = self._scheduler.clock()
        try:
            self._partitions.checkpoint.write()  # Retries a write that failed before.
        except StorageError as error:
            self._report_error(f"{_TASK}: writing the checkpoint", error)
        return any(self._clean_if_due(partition, log) for partition, log in self._due_logs())

    def _due_logs(self) -> list[tuple[TopicPartition, PartitionLog]]:
        """The dirtiest first."""
        ratios: dict[TopicPartition, float] = {}
        logs = self._partitions.compacted_logs()
        for partition, log in logs.items():
            if self._claims.of(partition) is None and not self._history.is_waiting(partition) and not log.in_doubt:
                try:
                    dirty = self._partitions.dirty_range(partition, log)
                except Exception as error:
                    self._fail(partition, error)
                else:
                    if dirty.is_eligible:
                        ratios[partition] = dirty.dirty_ratio
        return [(partition, logs[partition]) for partition in sorted(ratios, key=lambda found: (-ratios[found], found))]

    def _clean_if_due(self, partition: TopicPartition, log: PartitionLog) -> bool:
        """Returns False if the log is no longer due, or another thread compacts it."""
        cleaning: Cleaning | None = None
        try:
            with self._claims.claim(partition, log, wait=False) as cleaning:
                # Check again: from here on, a change of the policy stops this, and no other thread has the log.
                if cleaning is None or COMPACT not in log.config.cleanup_policy or self._history.is_waiting(partition):
                    return False
                cleaning.begin()
                dirty = self._partitions.dirty_range(partition, log)
                if not dirty.is_eligible:
                    return False
                self._clean(cleaning, dirty, self.settings.compaction)
        except CompactionStopped as stopped:
            _logger.info("%s", stopped)
            if cleaning is None or cleaning.stop_reason is not None:
                return False
            self._history.note_postponed(partition, str(stopped), self.settings.backoff_ms)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # A panic of a native library is not an `Exception`.
            self._fail(partition, error)
        return True

    def _fail(self, partition: TopicPartition, error: BaseException) -> None:
        pause_ms = self._history.note_failure(partition, error)
        self._report_error(f"{_TASK} of {partition}, to be retried in {pause_ms // 1000} s", error)

    # On request

    def compact(
        self,
        partition: TopicPartition,
        log: PartitionLog,
        settings: CompactionSettings | None = None,
        *,
        again: bool = False,
    ) -> CompactionReport:
        """Compact what can be compacted now, however little. Waits for a compaction of the log that is running.

        `settings` come from `self.settings.on_request`. With `again`, what was compacted before counts as new.
        """
        settings = self.settings.on_request() if settings is None else settings
        _check_policy(partition, log)
        with self._claims.claim(partition, log, wait=True) as cleaning:
            assert cleaning is not None
            # Check again: from here on, a change of the policy stops this.
            _check_policy(partition, log)
            repetitions = 0
            while True:
                try:
                    return self._clean_now(cleaning, settings, again=again)
                except CompactionStopped:
                    # Without a reason to stop, retention has deleted segments: the rest can be compacted.
                    repetitions += 1
                    if cleaning.stop_reason is not None or repetitions == _MOST_REPETITIONS:
                        raise

    def _clean_now(self, cleaning: Cleaning, settings: CompactionSettings, *, again: bool) -> CompactionReport:
        try:
            cleaning.begin()
            dirty = self._partitions.dirty_range(cleaning.partition, cleaning.log, again=again)
            if dirty.cleanable_bytes:
                return self._clean(cleaning, dirty, settings)
        except CompactionStopped:
            raise
        except Exception as error:
            self._history.note_failure(cleaning.partition, error)
            raise
        why_not = dirty.why_not()
        assert why_not is not None
        return CompactionReport(
            topic=cleaning.partition.topic,
            partition=cleaning.partition.partition,
            first_dirty_offset=dirty.first_dirty_offset,
            end=dirty.first_dirty_offset,
            end_offset=dirty.first_dirty_offset,
            notes=[why_not],
            idle=dirty,
        )

    # One compaction

    def _clean(self, cleaning: Cleaning, dirty: DirtyRange, settings: CompactionSettings) -> CompactionReport:
        def pass_bytes(count: int) -> None:
            self._throttle.add(count, cleaning.pause)
            cleaning.check_stop()

        def show(progress: CompactionProgress) -> None:
            cleaning.progress = progress
            with stopped_by(cleaning.check_stop):
                settings.on_progress(progress)

        end = cleaning.end = dirty.first_uncleanable.offset
        cleaning.log.flush(end)
        self._write_checkpoints()
        with self._lent_maps() as make_map:
            report = self._compact_log(
                cleaning.log,
                first_dirty_offset=dirty.first_dirty_offset,
                end=end,
                now_ms=self._clock(),
                settings=replace(
                    settings,
                    on_bytes=pass_bytes,
                    check_stop=cleaning.check_stop,
                    on_round=lambda end_offset: self._partitions.advance(cleaning, end_offset),
                    on_progress=show,
                    make_map=make_map,
                ),
            )
        self._partitions.advance(cleaning, report.end_offset)
        if report.end_offset <= dirty.first_dirty_offset:
            # Or it would be retried forever without a pause.
            raise StorageError(f"{cleaning.log.folder}: compaction makes no progress beyond offset {report.end_offset}")
        self._history.note_success(cleaning.partition, report)
        _logger.info("%s", summary(report))
        for note in (*report.notes, *report.left_segments, *report.corrupt_batches):
            _logger.warning("%s: %s", cleaning.partition, note)
        return report

    @contextmanager
    def _lent_maps(self) -> Iterator[MakeMap]:
        """Lend maps to one compaction. The kept memory is freed after the backoff."""
        try:
            with self._maps.lent() as make_map:
                yield make_map
        finally:
            self._scheduler.after(self.settings.backoff_ms, "giving memory back", self._maps.drop)

    # What happens to partitions

    @property
    def checkpoint(self) -> CleanerCheckpoint:
        return self._partitions.checkpoint

    def watch(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Follow the truncations of a new log."""
        self._partitions.watch(partition, log)

    def take_over(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Follow a log that was loaded after the directory was opened, and correct its checkpoint."""
        self._partitions.take_over(partition, log)

    def kept_away(self, partitions: Collection[TopicPartition], reason: str) -> AbstractContextManager[None]:
        """Inside the context these are not compacted. Running compactions of them are stopped and waited for."""
        return self._claims.kept_away(partitions, reason)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget deleted partitions, so that a new topic of the same name inherits nothing."""
        self._partitions.forget(partitions)

    # States

    def states(self) -> list[PartitionState]:
        """What each compacted partition is doing, and why, by name."""
        return self._partitions.states(has_threads=self._is_started)

    def totals(self) -> CleanerTotals:
        since_ms = None if self._last_run is None else self._scheduler.clock() - self._last_run
        threads = self.settings.threads if self._is_started else 0
        return totals_of(self.states(), self._history, threads=threads, time_since_last_run_ms=since_ms)


@contextmanager
def reports_only() -> Iterator[None]:
    """Do not log what the report of a compaction says too."""
    level = _logger.level
    _logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        _logger.setLevel(level)


def _check_policy(partition: TopicPartition, log: PartitionLog) -> None:
    policy = log.config.cleanup_policy
    if COMPACT not in policy:
        shown = log.config.text("cleanup.policy") if policy else "empty"
        raise InvalidConfig(
            f"{partition} is not compacted: the cleanup.policy of its topic is {shown}, without {COMPACT}"
        )
