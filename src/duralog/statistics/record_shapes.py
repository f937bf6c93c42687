"""Sizes and times of records, as counts in buckets, for charts.

Both add up like other counts, in any order. Memory is bounded: sizes have a bucket for each power of two, times
have buckets of one width, which becomes larger when more of them are in use than are allowed. A single record with a
timestamp far away from all others takes a bucket, and does not make the others coarse.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

_SIZE_BUCKETS = 33
"""Key and value have less than 4 GiB together."""
_MOST_TIME_BUCKETS = 2048
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_WIDTHS_MS = (
    *(_SECOND_MS, 10 * _SECOND_MS, _MINUTE_MS, 5 * _MINUTE_MS, 15 * _MINUTE_MS, _HOUR_MS, 6 * _HOUR_MS),
    *(_DAY_MS * 10**power for power in range(11)),
)
"""Each is a multiple of the one before: buckets can be put together, and never have to be divided."""
_DRAWN_WIDTHS_MS = (
    *(_SECOND_MS, 5 * _SECOND_MS, 10 * _SECOND_MS, 30 * _SECOND_MS),
    *(_MINUTE_MS, 5 * _MINUTE_MS, 10 * _MINUTE_MS, 15 * _MINUTE_MS, 30 * _MINUTE_MS),
    *(_HOUR_MS, 3 * _HOUR_MS, 6 * _HOUR_MS, 12 * _HOUR_MS),
    *(_DAY_MS * factor * 10**power for power in range(11) for factor in (1, 2, 5)),
)
_FARTHEST_MS = 1 << 62
"""Later times, beyond the calendar, count as this one."""
_FAR_SHARE = 0.01
"""The share of the records, on either side, that a chart leaves out if they are far away from the others."""


class Buckets(NamedTuple):
    """Neighbouring spans of time with their records."""

    first_ms: int
    width_ms: int
    counts: list[int]
    before: int
    """Records that are not shown, since they lie far before all others."""
    after: int


@dataclass(slots=True)
class TimeCounts:
    width_ms: int = _WIDTHS_MS[0]
    numbers: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Of the buckets that have records, in order: a bucket begins at its number times the width."""
    counts: Int64s = field(default_factory=lambda: np.empty(0, np.int64))

    def add_times(self, times_ms: Int64s) -> None:
        if len(times_ms):
            numbers, counts = np.unique(
                np.clip(times_ms, -_FARTHEST_MS, _FARTHEST_MS) // self.width_ms, return_counts=True
            )
            self._put(numbers, counts)

    def add(self, other: TimeCounts) -> None:
        if other.width_ms > self.width_ms:
            self._widen(other.width_ms)
        self._put(other.numbers // (self.width_ms // other.width_ms), other.counts)

    def _put(self, numbers: Int64s, counts: Int64s) -> None:
        self.numbers, self.counts = _sums(
            np.concatenate([self.numbers, numbers]), np.concatenate([self.counts, counts])
        )
        while len(self.numbers) > _MOST_TIME_BUCKETS:
            self._widen(_WIDTHS_MS[_WIDTHS_MS.index(self.width_ms) + 1])

    def _widen(self, width_ms: int) -> None:
        self.numbers, self.counts = _sums(self.numbers // (width_ms // self.width_ms), self.counts)
        self.width_ms = width_ms

    @property
    def records(self) -> int:
        return int(self.counts.sum())

    def buckets(self, most: int = 120) -> Buckets | None:
        """At most this many for a chart, of a round width; None without records."""
        if not len(self.numbers):
            return None
        first, last = _near(self.numbers, self.counts)
        first_ms, end_ms = int(self.numbers[first]) * self.width_ms, (int(self.numbers[last]) + 1) * self.width_ms
        for width_ms in _DRAWN_WIDTHS_MS:
            count = -(-end_ms // width_ms) - first_ms // width_ms
            if width_ms % self.width_ms == 0 and count <= most:
                break
        begin = first_ms // width_ms
        shown = slice(first, last + 1)
        places = self.numbers[shown] * self.width_ms // width_ms - begin
        counts = np.bincount(places, self.counts[shown], minlength=count)
        return Buckets(
            begin * width_ms,
            width_ms,
            [int(found) for found in counts],
            int(self.counts[:first].sum()),
            int(self.counts[last + 1 :].sum()),
        )


@dataclass(slots=True)
class RecordShape:
    sizes: Int64s = field(default_factory=lambda: np.zeros(_SIZE_BUCKETS, np.int64))
    """How many records have a key and value of together 0 bytes, 1, 2 to 3, 4 to 7, and so on."""
    times: TimeCounts = field(default_factory=TimeCounts)

    def add_records(self, sizes: Int64s, times_ms: Int64s) -> None:
        """The times are those of the records that have one."""
        # The exponent of a float is the position of an integer's highest bit.
        places = np.frexp(sizes.astype(np.float64))[1]
        self.sizes += np.bincount(np.minimum(places, _SIZE_BUCKETS - 1), minlength=_SIZE_BUCKETS)
        self.times.add_times(times_ms)

    def add(self, other: RecordShape) -> None:
        self.sizes += other.sizes
        self.times.add(other.times)


def size_range(bucket: int) -> tuple[int, int]:
    """The smallest and the largest size of a bucket."""
    return (0, 0) if bucket == 0 else (1 << (bucket - 1), (1 << bucket) - 1)


def _sums(numbers: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    found, places = np.unique(numbers, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, places, counts)
    return found, sums


def _near(numbers: Int64s, counts: Int64s) -> tuple[int, int]:
    """The first and the last bucket to show: all, unless a few records would squeeze the others into a thin line."""
    total = counts.sum()
    reached = np.cumsum(counts)
    first = int(np.searchsorted(reached, total * _FAR_SHARE, side="right"))
    last = int(np.searchsorted(reached, total * (1 - _FAR_SHARE), side="left"))
    span = int(numbers[last] - numbers[first]) + 1
    # Not far: within the span of the others once more.
    while first > 0 and numbers[first] - numbers[first - 1] <= span:
        first -= 1
    while last < len(numbers) - 1 and numbers[last + 1] - numbers[last] <= span:
        last += 1
    return first, last
