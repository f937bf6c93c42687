"""Counters of requests: plain numbers that the loop's thread adds to, and that a scrape reads.

Adding must cost next to nothing, so there is one object for each API, found with its handler.
"""

from __future__ import annotations

from bisect import bisect_left

TIME_BUCKETS_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class ApiStats:
    """The requests of one API so far."""

    __slots__ = ("api", "buckets", "bytes_in", "bytes_out", "count", "errors", "seconds")

    def __init__(self, api: str) -> None:
        self.api = api
        self.count = 0
        self.errors = 0
        """Requests whose handler raised an unexpected error."""
        self.seconds = 0.0
        """From a complete request to its answer, waiting included."""
        self.buckets = [0] * (len(TIME_BUCKETS_SECONDS) + 1)
        self.bytes_in = 0
        self.bytes_out = 0

    def add(self, seconds: float, bytes_in: int, bytes_out: int) -> None:
        self.count += 1
        self.seconds += seconds
        self.buckets[bisect_left(TIME_BUCKETS_SECONDS, seconds)] += 1
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
