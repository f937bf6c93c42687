"""What the cleaner remembers about partitions: how the last compaction ended, and when the next may start.

A failed compaction is retried after a pause, which doubles with each failure in a row up to an hour. The retries never
stop: the disk may have room again, and a damaged segment may be repaired or deleted by retention.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.disk.background import Clock

FIRST_RETRY_MS = 15_000
LONGEST_RETRY_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRecord:
    """The last compaction of one partition."""

    attempts: int = 0
    """Failures in a row."""
    reason: str | None = None
    """Why the last one failed or was postponed; None after a success."""
    retry_at: int = 0
    """On the steady clock."""
    last_report: CompactionReport | None = None
    last_ended_ms: int | None = None


_UNKNOWN = CleaningRecord()


class CleanerHistory:
    """Any thread may call any method."""

    def __init__(self, *, clock: Clock, steady_clock: Clock, latest: int) -> None:
        """`latest` reports are kept, of all partitions together."""
        self._clock = clock
        self._steady_clock = steady_clock
        self._lock = threading.Lock()
        self._by_partition: dict[TopicPartition, CleaningRecord] = {}
        self._latest: deque[CompactionReport] = deque(maxlen=latest)
        self.succeeded = 0
        self.failed = 0

    def of(self, partition: TopicPartition) -> CleaningRecord:
        return self._by_partition.get(partition, _UNKNOWN)

    @property
    def latest_reports(self) -> tuple[CompactionReport, ...]:
        return tuple(self._latest)

    def keep_latest(self, latest: int) -> None:
        """Keep this many reports from now on."""
        with self._lock:
            self._latest = deque(self._latest, maxlen=latest)

    def is_waiting(self, partition: TopicPartition) -> bool:
        """Whether it is too early for another attempt."""
        return self.of(partition).retry_at > self._steady_clock()

    def retry_at_ms(self, partition: TopicPartition) -> int:
        """The time of day of the next attempt."""
        return self._clock() + max(self.of(partition).retry_at - self._steady_clock(), 0)

    def note_success(self, partition: TopicPartition, report: CompactionReport) -> None:
        with self._lock:
            self._by_partition[partition] = CleaningRecord(last_report=report, last_ended_ms=self._clock())
            self._latest.append(report)
            self.succeeded += 1

    def note_failure(self, partition: TopicPartition, error: BaseException) -> int:
        """Returns the milliseconds to the next attempt."""
        with self._lock:
            known = self.of(partition)
            attempts = known.attempts + 1
            pause_ms = min(FIRST_RETRY_MS << min(attempts - 1, 20), LONGEST_RETRY_MS)
            reason = str(error) if isinstance(error, DuralogError) else repr(error)
            self._by_partition[partition] = replace(
                known, attempts=attempts, reason=reason, retry_at=self._steady_clock() + pause_ms
            )
            self.failed += 1
            return pause_ms

    def note_postponed(self, partition: TopicPartition, reason: str, pause_ms: int) -> None:
        """Nothing has failed, but the compaction has to be repeated after a pause."""
        with self._lock:
            self._by_partition[partition] = replace(
                self.of(partition), reason=reason, retry_at=self._steady_clock() + pause_ms
            )

    def forgive(self, partition: TopicPartition) -> None:
        """Retry without a pause: the cause of the last failure may be gone."""
        with self._lock:
            if partition in self._by_partition:
                self._by_partition[partition] = replace(self.of(partition), retry_at=0)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._by_partition.pop(partition, None)
