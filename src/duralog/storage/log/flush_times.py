"""How long the flushes of a log took: plain numbers that the flushing thread adds to, and that a scrape reads."""

from __future__ import annotations

from bisect import bisect_left

FLUSH_BUCKETS_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class FlushTimes:
    """In Kafka: `LogFlushStats`. Added to under `LogWriter.flushing`."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(FLUSH_BUCKETS_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(FLUSH_BUCKETS_SECONDS, seconds)] += 1
        self.seconds += seconds
