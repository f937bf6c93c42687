"""Which batches each copy of a partition should have: a pure function over the batches that the copies have.

Above the cleaners' checkpoints, all copies have the same batches: those of the chosen copy or, where it has none, those
of the others. Below, each cleaner has left other batches, and a copy keeps its own. One that is damaged there gets all
batches below the checkpoints from one sound copy: batches of two cleaners must not be mixed. A value that one of them
has removed, and its tombstone with it, would come back from the other.

A batch belongs to the log if its leader epoch is the one that the history has at its offset. Offset and epoch name a
batch: Kafka has one leader in an epoch. Where cleaners have been, the chosen copy may not know all epochs: it was
fetched when no batch of them was left. There, the epochs of the copy itself count, too, up to where it diverges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.format.checkpoints import EpochStart
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.scanning.cluster.batch_rows import PLACED_ROW, keys

NOWHERE = 2**63 - 1
"""Above all offsets."""

CONTENT = ["size", "crc"]
"""What the checksum covers: neither the offset nor the leader epoch."""
_V2 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What belongs to the log."""

    epochs: tuple[EpochStart, ...]
    limits: tuple[int, ...]
    """For each copy, the offset from which on it has another history."""
    own_epochs: tuple[tuple[EpochStart, ...], ...]
    """Of each copy."""
    dense_from: int

    def mask(self, copy: int, rows: NDArray[Any]) -> NDArray[np.bool_]:
        below: NDArray[np.bool_] = rows["last_offset"] < self.limits[copy]
        if not self.epochs:
            return below
        expected = _epochs_at(self.epochs, rows["base_offset"])
        has_epoch = (rows["leader_epoch"] != NO_LEADER_EPOCH) & (expected >= 0)
        found: NDArray[np.bool_] = np.where(has_epoch, rows["leader_epoch"] == expected, below)
        if not found.all() and int(rows["base_offset"][0]) < self.dense_from:
            own = _epochs_at(self.own_epochs[copy], rows["base_offset"])
            found |= below & (rows["last_offset"] < self.dense_from) & (rows["leader_epoch"] == own)
        return found


@dataclass(slots=True, kw_only=True)
class DenseLog:
    """The batches of the log above the cleaners' checkpoints, window after window."""

    order: Sequence[int]
    """Of the copies: that of the chosen one first."""
    reached: int
    """The offset after the last batch so far."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that no copy has."""

    def add(self, end_offset: int, by_copy: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The batches of the next window, which ends at this offset, from those of each copy that belong to the log.

        A batch is in the window of its last offset. So one may start before its window.
        """
        found = by_copy[self.order[0]]
        for other in self.order[1:]:
            found = filled(found, by_copy[other], self.reached, end_offset - 1)
        if len(found):
            last = int(found["last_offset"][-1])
            self.lost += [gap[:2] for gap in gaps(found, self.reached, last) if gap[2]]
            self.reached = max(self.reached, last + 1)
        return found


def _epochs_at(epochs: Sequence[EpochStart], offsets: NDArray[Any]) -> NDArray[Any]:
    """The epoch of each offset; -1 before the first one."""
    starts = [entry.start_offset for entry in epochs]
    numbers = np.array([NO_LEADER_EPOCH, *(entry.epoch for entry in epochs)], np.int64)
    return numbers[np.searchsorted(starts, offsets, side="right")] if starts else np.full(len(offsets), -1)


def gaps(rows: NDArray[Any], first: int, last: int) -> list[tuple[int, int, bool]]:
    """The offsets between batches, from `first` to `last`, and whether they are certainly missing.

    Of a compressed message of an old format, only the last offset is known.
    """
    before = np.concatenate(([first - 1], rows["last_offset"]))
    is_known = np.concatenate((rows["magic"] == _V2, [True]))
    begins = np.concatenate((np.where(rows["magic"] == _V2, rows["base_offset"], rows["last_offset"]), [last + 1]))
    places = np.flatnonzero(begins > before + 1)
    return [
        (low, high, bool(is_known[place]))
        for place in places.tolist()
        if (low := max(int(before[place]) + 1, first)) <= (high := min(int(begins[place]) - 1, last))
    ]


def filled(rows: NDArray[Any], others: NDArray[Any], first: int, last: int) -> NDArray[Any]:
    """The batches, and those of another copy that lie between them."""
    if not len(others):
        return rows
    begins = np.where(others["magic"] == _V2, others["base_offset"], others["last_offset"])
    is_taken = np.zeros(len(others), np.bool_)
    for low, high, _ in gaps(rows, first, last):
        is_taken |= (begins >= low) & (others["last_offset"] <= high)
    return joined(rows, others[is_taken])


def filled_where_damaged(rows: NDArray[Any], others: NDArray[Any], ranges: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """The batches, and those of another copy that lie in these ranges between them."""
    is_taken = np.zeros(len(others), np.bool_)
    for first, last in ranges:
        for low, high, _ in gaps(rows, first, last):
            is_taken |= (others["base_offset"] >= low) & (others["last_offset"] <= high)
    return joined(rows, others[is_taken])


def joined(rows: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    """Both, by offset."""
    if not len(others):
        return rows
    if not len(rows):
        return others
    both = np.concatenate((rows, others))
    return both[np.argsort(both["last_offset"], kind="stable")]


def without_misplaced(rows: NDArray[Any], by_copy: Sequence[NDArray[Any]], number: int) -> NDArray[Any]:
    """The batches of a copy without those at a wrong offset, which the checksum does not cover.

    Such a batch follows missing offsets, at an offset at which no other copy has it, and another copy has it where this
    one has none.
    """
    others = [each for other, each in enumerate(by_copy) if other != number and len(each)]
    if not len(rows) or not others or any(keys(each).tobytes() == keys(rows).tobytes() for each in others):
        return rows
    elsewhere = np.concatenate(others)
    is_alone = ~np.isin(keys(rows), keys(elsewhere))
    if not is_alone.any():
        return rows
    lacking = elsewhere[~np.isin(elsewhere["last_offset"], rows["last_offset"])]
    is_misplaced = is_alone & (rows["expected_offset"] >= 0) & np.isin(rows[CONTENT], lacking[CONTENT])
    return rows[~is_misplaced]


def nothing() -> NDArray[Any]:
    return np.empty(0, PLACED_ROW)
