"""When tombstones and transaction markers may go: the delete horizons of batches.

The first compaction that meets a tombstone gives its batch a horizon, `delete.retention.ms` away. A compaction after
that time drops it. All batches of one compaction get the same horizon, so there are few of them in a log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.format.layout import DELETE_HORIZON_BIT

_MOST_TIMES = 1000


class DeleteHorizons:
    """Counts batches by their horizons. Memory is bounded for any batches."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.batches = 0
        """How many have a horizon."""
        self.passed_batches = 0
        """How many have a horizon that has passed."""
        self.earliest_ms: int | None = None
        self.latest_ms: int | None = None
        self.by_time: dict[int, int] = {}
        """How many batches have each horizon; only the first ones, if there are very many horizons."""

    def add(self, batches: NDArray[Any]) -> None:
        """Count these rows (`BATCH_DTYPE`)."""
        has_horizon = (batches["magic"] >= 2) & (batches["attributes"] & DELETE_HORIZON_BIT != 0)
        horizons = batches["base_timestamp"][has_horizon]
        if not len(horizons):
            return
        times, counts = np.unique(horizons, return_counts=True)
        self.batches += len(horizons)
        self.passed_batches += int(np.count_nonzero(horizons <= self._now_ms))
        first, last = int(times[0]), int(times[-1])
        self.earliest_ms = first if self.earliest_ms is None else min(first, self.earliest_ms)
        self.latest_ms = last if self.latest_ms is None else max(last, self.latest_ms)
        for time_ms, count in zip(times.tolist(), counts.tolist(), strict=True):
            if time_ms in self.by_time or len(self.by_time) < _MOST_TIMES:
                self.by_time[time_ms] = self.by_time.get(time_ms, 0) + count
