"""One running compaction: its thread, its progress, and how to stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.report import CompactionProgress, CompactionReport, CompactionStopped
from duralog.storage.compaction.settings import CompactionSettings
from duralog.storage.log.partition_log import PartitionLog

WaitFor = Callable[[threading.Event, float], object]
"""Waits for a number of seconds, or until the event is set."""

_LONGEST_WAIT_SECONDS = 1.0


def wait_for(event: threading.Event, seconds: float) -> None:
    """Wait, but no longer than the main thread of the process lives."""
    end = time.monotonic() + seconds
    while threading.main_thread().is_alive() and (left := end - time.monotonic()) > 0:
        if event.wait(min(left, _LONGEST_WAIT_SECONDS)):
            return


class CompactLog(Protocol):
    """`duralog.storage.compaction.compact.compact_log`."""

    def __call__(
        self, log: PartitionLog, *, first_dirty_offset: int, end: int, now_ms: int, settings: CompactionSettings
    ) -> CompactionReport: ...


class Cleaning:
    """The thread that compacts calls `check_stop` and `pause`; any thread may call `stop` and `hurry`."""

    def __init__(self, partition: TopicPartition, log: PartitionLog, started_ms: int, wait: WaitFor) -> None:
        self.partition = partition
        self.log = log
        self.started_ms = started_ms
        self.thread = threading.current_thread()
        self.progress: CompactionProgress | None = None
        self.end: int | None = None
        """The offset up to which it goes."""
        self.cut_at: int | None = None
        """The log was truncated here meanwhile, below the end."""
        self.stop_reason: str | None = None
        self._wait = wait
        self._woken = threading.Event()

    def begin(self) -> None:
        """Call this before reading the log: a truncation is complete afterwards, or stops this compaction."""
        self.end = None
        with self.log.writers_waiting():
            pass

    def stop(self, reason: str) -> None:
        """Stop it at the next check. Groups that are swapped in stay."""
        self.stop_reason = self.stop_reason or reason
        self._woken.set()

    def check_stop(self) -> None:
        if not threading.main_thread().is_alive():
            self.stop("the process ends")
        if self.stop_reason is not None:
            raise CompactionStopped(f"{self.partition}: the compaction was stopped: {self.stop_reason}")

    def hurry(self) -> None:
        """End a pause: the limit that it was for has changed."""
        self._woken.set()

    def pause(self, seconds: float) -> None:
        """Wait for the time, or until `hurry` or `stop` is called."""
        self._wait(self._woken, seconds)
        if self.stop_reason is None:
            self._woken.clear()
