"""How long the flushes of a store's logs took: plain numbers that flushing threads add to, and that a scrape reads."""

from __future__ import annotations

import threading
from bisect import bisect_left

FLUSH_BUCKETS_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class FlushTimes:
    """In Kafka: `LogFlushStats`. One for all logs of a store, so that it only grows, whatever is deleted."""

    __slots__ = ("_adding", "buckets", "seconds")

    def __init__(self) -> None:
        self._adding = threading.Lock()
        self.buckets = [0] * (len(FLUSH_BUCKETS_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        with self._adding:
            self.buckets[bisect_left(FLUSH_BUCKETS_SECONDS, seconds)] += 1
            self.seconds += seconds
