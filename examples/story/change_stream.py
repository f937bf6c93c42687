"""A made-up change stream: the prices and stocks of a shop's products over a week.

Everything is made as columns, a hundred thousand records at a time. A few products change all the time and most hardly
ever; there is more to do by day than by night; one change in fifty takes a product out of the shop. The same seed makes
the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

FIRST_MS = 1_767_571_200_000
"""Monday, 5 January 2026, 0:00 UTC."""
HOUR_MS = 3_600_000
HOURS = 7 * 24
_CHUNK = 100_000
_DELETED_SHARE = 0.02
_SKEW = 3.0
"""How unequal products are: 1 makes all of them change equally often."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in the order of their times, with what is needed to check the log afterwards."""

    table: pa.Table
    """`key`, `value`, `timestamp`."""
    products: NDArray[np.int64]
    is_deletion: NDArray[np.bool_]


class ChangeStream:
    def __init__(self, records: int, products: int, seed: int = 7) -> None:
        self.records = records
        self._random = np.random.default_rng(seed)
        self._popularity = self._random.permutation(products)
        """Which product is how popular: so that the popular ones are all over the partitions."""

    def chunks(self) -> Iterator[Chunk]:
        times = self._times()
        for first in range(0, self.records, _CHUNK):
            yield self._chunk(times[first : first + _CHUNK])

    def _times(self) -> NDArray[np.int64]:
        """Evenly over the curve of a week, which goes up and down with the hours."""
        hours = np.arange(HOURS * 4 + 1) / 4
        busy = (1.0 + 0.75 * np.sin((hours - 9) / 24 * 2 * np.pi)) * np.where(hours // 24 >= 5, 0.7, 1.0)
        share = np.concatenate([[0.0], np.cumsum(busy[:-1])])
        at = np.interp(np.arange(self.records) / self.records * share[-1], share, hours * HOUR_MS)
        times: NDArray[np.int64] = FIRST_MS + at.astype(np.int64)
        return times

    def _chunk(self, times: NDArray[np.int64]) -> Chunk:
        chance, size, products = self._random, len(times), len(self._popularity)
        chosen = self._popularity[(products * chance.random(size) ** _SKEW).astype(np.int64)]
        is_deletion = chance.random(size) < _DELETED_SHARE
        key = pc.binary_join_element_wise("product-", _digits(chosen), "")
        value = pc.binary_join_element_wise(
            '{"price":',
            _digits(chance.integers(99, 99_999, size)),
            ',"stock":',
            _digits(chance.integers(0, 500, size)),
            ',"warehouse":"',
            pa.array(["Bremen", "Lyon", "Porto", "Turku"]).take(pa.array(chance.integers(0, 4, size))),
            '","change":"',
            _digits(chance.integers(0, 2**62, size)),
            '"}',
            "",
        )
        value = pc.if_else(pa.array(is_deletion), pa.scalar(None, pa.string()), value)
        columns: dict[str, Any] = {"key": key.cast(pa.binary()), "value": value.cast(pa.binary()), "timestamp": times}
        return Chunk(pa.table(columns), chosen, is_deletion)


def _digits(numbers: NDArray[np.int64]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
