"""The work for pages of a directory: searches, checks, explanations, and one compaction at a time.

Each runs on its own thread or a page's. All are stopped when the console ends; only a compaction is finished first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from duralog.config import BrokerConfig, TopicConfig
from duralog.config.error_text import printable
from duralog.console.facts.runs import Rehearsal
from duralog.console.source import Busy, ChangesNotAllowed
from duralog.console.sources.directory.compaction_runs import DirectoryCompaction, check_compacted, rehearse
from duralog.console.sources.directory.fresh_logs import FreshLogs
from duralog.console.sources.directory.key_search import DirectoryKeySearch
from duralog.console.sources.directory.verify_runs import DirectoryVerification
from duralog.console.sources.searches import Searches
from duralog.errors import StorageError, StoreLocked
from duralog.format.filenames import LOCK
from duralog.format.topic_partition import TopicPartition
from duralog.operations.lock_holder import lock_holder
from duralog.storage.disk.background import Clock

_logger = logging.getLogger(__name__)

_MOST_REHEARSALS = 3
"""At the same time: each needs memory for the keys of its log."""
_REHEARSAL_PATIENCE_SECONDS = 2.0


class DirectoryRuns:
    """Thread-safe."""

    def __init__(self, path: str, logs: FreshLogs, clock: Clock, *, allow_changes: bool) -> None:
        self._path = path
        self._logs = logs
        self._clock = clock
        self._allow_changes = allow_changes
        self._searches: Searches[DirectoryKeySearch] = Searches()
        self._rehearsals = threading.BoundedSemaphore(_MOST_REHEARSALS)
        self._starting = threading.Lock()
        self._is_closed = False
        self.compaction: DirectoryCompaction | None = None
        self.verification: DirectoryVerification | None = None

    def find_key(self, place: TopicPartition, key: bytes, *, from_offset: int | None, limit: int) -> DirectoryKeySearch:
        return self._searches.start(
            lambda: DirectoryKeySearch(self._logs, place, key, from_offset=from_offset, limit=limit)
        )

    def rehearse(self, place: TopicPartition, config: BrokerConfig, is_wanted: Callable[[], bool]) -> Rehearsal:
        def why_stop() -> str | None:
            if self._is_closed:
                return "the console is closing"
            return None if is_wanted() else "the page was left"

        if not self._rehearsals.acquire(timeout=_REHEARSAL_PATIENCE_SECONDS):
            raise Busy(f"{_MOST_REHEARSALS} logs are being explained already: try again when one of them is done")
        try:
            return rehearse(self._path, config, place, self._clock, why_stop)
        finally:
            self._rehearsals.release()

    def check_compaction(self, place: TopicPartition, config: TopicConfig) -> None:
        """Raises why `compact` would refuse."""
        check_compacted(printable(place.topic), config)
        if not self._allow_changes:
            raise ChangesNotAllowed("This console is read-only: start it with --allow-changes, or run the command.")
        if self.compaction is not None and self.compaction.is_running:
            raise Busy(f"{printable(str(self.compaction.place))} is being compacted: one at a time")
        holder = lock_holder(f"{self._path}/{LOCK}")
        if holder is not None:
            raise StoreLocked(f"{holder} has the directory open: its own cleaner compacts it, or stop it and try again")

    def compact(self, place: TopicPartition, config: TopicConfig) -> DirectoryCompaction:
        with self._starting:
            self._check_open()
            self.check_compaction(place, config)
            compaction = DirectoryCompaction(self._path, place, self._clock)
            # First: if its thread cannot be started, it must not count as running. The same for a check, below.
            compaction.start()
            self.compaction = compaction
            return compaction

    def verify(self, topic: str | None, partition: int | None) -> DirectoryVerification:
        with self._starting:
            self._check_open()
            if self.verification is not None and self.verification.is_running:
                raise Busy("a check is running already: wait for it, or stop it first")
            verification = DirectoryVerification(self._path, topic, partition, self._clock)
            verification.start()
            self.verification = verification
            return verification

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
        if self.verification is not None:
            self.verification.stop()
        self._searches.close()
        if self.verification is not None:
            self.verification.wait()
        if self.compaction is not None:
            if self.compaction.is_running:
                _logger.info("the console ends after the compaction of %s", self.compaction.place)
            self.compaction.wait()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError("the console is closing")
