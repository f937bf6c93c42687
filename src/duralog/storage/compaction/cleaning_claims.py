"""Which thread compacts which log: one at a time for each, and none while its topic is deleted or the store is closed.

The lock in here is held briefly: never while a log's lock is taken, a file is touched, or a compaction runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaning import Cleaning, WaitFor
from duralog.storage.compaction.report import CompactionStopped
from duralog.storage.disk import forks
from duralog.storage.disk.background import Clock
from duralog.storage.log.partition_log import Logs, PartitionLog


class CleaningClaims:
    """The running compactions. Any thread may call any method."""

    def __init__(self, logs: Logs, clock: Clock, wait: WaitFor) -> None:
        self._logs = logs
        self._clock = clock
        self._wait = wait
        self._changed = threading.Condition()
        self._cleanings: dict[TopicPartition, Cleaning] = {}
        self._kept_away: Counter[TopicPartition] = Counter()
        """How many contexts keep a partition from being compacted."""
        self._is_stopping = False
        forks.belongs_here(self)

    def on_fork(self) -> None:
        """The child has none of the threads that compact, and starts none."""
        self._changed = threading.Condition()
        self._is_stopping = True
        self._cleanings = {}

    def of(self, partition: TopicPartition) -> Cleaning | None:
        return self._cleanings.get(partition)

    @contextmanager
    def claim(self, partition: TopicPartition, log: PartitionLog, *, wait: bool) -> Iterator[Cleaning | None]:
        """Claim a log for this thread. None if another thread has it; with `wait`, wait for that thread's end instead.

        Raises `CompactionStopped` if the log must no longer be compacted.
        """
        with self._changed:
            if wait:
                running = self._cleanings.get(partition)
                if running is not None and running.thread is threading.current_thread():
                    raise CompactionStopped(f"{partition} is already being compacted by this thread")
                self._changed.wait_for(lambda: self._is_stopping or partition not in self._cleanings)
            # A log that is no longer the partition's belonged to a deleted topic.
            if self._is_stopping or partition in self._kept_away or self._logs().get(partition) is not log:
                raise CompactionStopped(f"{partition} is not compacted: its topic changes, or the store is closed")
            cleaning: Cleaning | None = None
            if partition not in self._cleanings:
                cleaning = self._cleanings[partition] = Cleaning(partition, log, self._clock(), self._wait)
        try:
            yield cleaning
        finally:
            if cleaning is not None:
                with self._changed:
                    self._cleanings.pop(partition, None)  # A forked child has none.
                    self._changed.notify_all()

    @contextmanager
    def kept_away(self, partitions: Collection[TopicPartition], reason: str) -> Iterator[None]:
        """Inside the context these are not compacted. Running compactions of them are stopped and waited for."""
        with self._changed:
            self._kept_away.update(partitions)
            self._stop(partitions, reason)
        try:
            yield
        finally:
            with self._changed:
                self._kept_away.subtract(partitions)
                self._kept_away += Counter()  # Without those at zero.

    def hurry(self) -> None:
        """End the pauses of all compactions."""
        with self._changed:
            for cleaning in self._cleanings.values():
                cleaning.hurry()

    def stop_all(self, reason: str) -> None:
        """Return when no compaction is running. None begins after that."""
        with self._changed:
            self._is_stopping = True
            self._stop([*self._cleanings], reason)

    def _stop(self, partitions: Collection[TopicPartition], reason: str) -> None:
        for cleaning in self._running(partitions):
            cleaning.stop(reason)
        self._changed.notify_all()
        # A thread cannot wait for its own compaction.
        this = threading.current_thread()
        self._changed.wait_for(lambda: all(cleaning.thread is this for cleaning in self._running(partitions)))

    def _running(self, partitions: Collection[TopicPartition]) -> list[Cleaning]:
        return [self._cleanings[partition] for partition in partitions if partition in self._cleanings]
