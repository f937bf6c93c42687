"""Which batches are visible to a reader.

Control batches never are. With `read_committed`, neither are batches from the last stable offset on, nor those of
aborted transactions. The latter are identified by the producer and the range from the transaction's first offset to its
abort marker: within that range all transactional batches of the producer belong to the transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import CONTROL_BIT, TRANSACTIONAL_BIT


class Isolation(StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"

    @classmethod
    def _missing_(cls, value: object) -> Isolation:
        raise ValueError(f"isolation is {' or '.join(cls)}, not {value!r}")


def visible_rows(batches: NDArray[Any], aborted: Callable[[], Iterable[AbortedTransaction]]) -> NDArray[np.intp] | None:
    """The rows of the batches (`BATCH_DTYPE`) that are visible to the reader; None if all are.

    `aborted` returns the aborted transactions. It is only called if there are transactional batches.
    """
    flags = batches["attributes"] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    if not flags.any():
        return None
    flags[batches["magic"] < 2] = 0
    hidden = flags & CONTROL_BIT != 0
    transactional = np.flatnonzero(flags == TRANSACTIONAL_BIT)
    if len(transactional):
        for producer_id, ranges in _by_producer(aborted()).items():
            rows = transactional[batches["producer_id"][transactional] == producer_id]
            if len(rows):
                hidden[rows] = _within(batches["base_offset"][rows], ranges)
    return np.flatnonzero(~hidden)


def _by_producer(aborted: Iterable[AbortedTransaction]) -> dict[int, list[tuple[int, int]]]:
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for transaction in aborted:
        ranges[transaction.producer_id].append((transaction.first_offset, transaction.last_offset))
    return ranges


def _within(offsets: NDArray[np.int64], ranges: list[tuple[int, int]]) -> NDArray[np.bool_]:
    """Whether each offset is in one of the ranges. They do not overlap: a producer has one transaction at a time."""
    firsts, lasts = np.array(sorted(ranges), np.int64).T
    candidate = np.searchsorted(firsts, offsets, side="right") - 1
    inside: NDArray[np.bool_] = (candidate >= 0) & (offsets <= lasts[candidate])
    return inside
