"""A histogram of latencies, in buckets 2 % wide: a few kilobytes for any number of requests."""

from __future__ import annotations

import math

_GROWTH = 1.02
_SHORTEST_MS = 1e-3
_BUCKETS = 1_200
"""Up to hours."""
PERCENTILES = (50.0, 99.0, 99.9)


class Latencies:
    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.longest_ms = 0.0

    def add(self, milliseconds: float) -> None:
        self.count += 1
        self.longest_ms = max(self.longest_ms, milliseconds)
        self._counts[_bucket(milliseconds)] += 1

    def percentile_ms(self, percentile: float) -> float:
        """The latency at a percentile; 0 without any latencies."""
        wanted = math.ceil(self.count * percentile / 100)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_SHORTEST_MS * _GROWTH ** (bucket + 1), self.longest_ms)
        return 0.0

    def percentiles_ms(self) -> list[float]:
        return [self.percentile_ms(percentile) for percentile in PERCENTILES]

    def to_dict(self) -> dict[str, float | int]:
        named = {f"p{percentile:g}": round(self.percentile_ms(percentile), 4) for percentile in PERCENTILES}
        return {**named, "max": round(self.longest_ms, 4), "count": self.count}


def _bucket(milliseconds: float) -> int:
    if milliseconds <= _SHORTEST_MS:
        return 0
    return min(int(math.log(milliseconds / _SHORTEST_MS) / math.log(_GROWTH)), _BUCKETS - 1)
