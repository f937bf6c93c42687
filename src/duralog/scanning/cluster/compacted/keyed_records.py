"""The records of copies by key: what tells a record that a cleaner removed from one that is lost.

A cleaner keeps the last record of each key. So a copy that it has been at has no key twice, up to where the cleaner
was. A record that such a copy lacks was removed, if a later one of its key is there, or if it is a tombstone. Where a
copy has keys twice, no cleaner has been: what it lacks there is lost.

Aborted records and control batches are left out: a cleaner may remove them at any time. A record without a key counts
as the only one of its key. Keys are compared by their digests.

What must always be true: memory is bounded. The keys of large logs are read in shares, each by reading the logs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from duralog.kernels.key_digests import digests_of
from duralog.scanning.cluster.batch_rows import CopyRows

_MOST_RECORDS = 8_000_000
"""Of all copies, in memory at a time. More are read in shares."""
_MOST_SHARES = 64
_NO_KEY = 2**64 - 1

RECORD = np.dtype(
    [
        ("high", np.uint64),
        ("low", np.uint64),
        ("offset", np.int64),
        ("base_offset", np.int64),
        ("is_tombstone", np.bool_),
    ]
)
"""The digest of the key, the record's offset, that of its batch, and whether it has no value."""

Belongs = Callable[[int, NDArray[Any]], NDArray[np.bool_]]
"""Which batches of a copy, by its number, are part of the log."""


class KeyedCopies:
    """The records of some copies, by shares of their keys. Sorted by key and offset."""

    def __init__(self, copies: Sequence[CopyRows], belongs: Belongs) -> None:
        self._copies = copies
        self._belongs = belongs
        records = sum(_most_records(rows) for rows in copies)
        self._shares = min(1 + records // _MOST_RECORDS, _MOST_SHARES)
        self._read: list[NDArray[Any]] | None = None
        self.first_repeats = self._first_repeats()
        """For each copy, the offset of the first record whose key is in the copy before."""

    def shares(self) -> Iterator[list[NDArray[Any]]]:
        """The records of each copy, share after share."""
        if self._read is not None:
            yield self._read
            return
        for share in range(self._shares):
            found = [self._records(rows, share) for rows in self._copies]
            if self._shares == 1:
                self._read = found
            yield found

    def _first_repeats(self) -> list[int]:
        found = [2**63 - 1] * len(self._copies)
        for records in self.shares():
            for number, each in enumerate(records):
                repeated = each["offset"][1:][_is_same_key(each)]
                found[number] = min(found[number], int(repeated.min(initial=found[number])))
        return found

    def _records(self, rows: CopyRows, share: int) -> NDArray[Any]:
        aborted = _aborted(rows)
        found: list[NDArray[Any]] = []
        for base in rows.bases:
            valid = rows.segment(base).rows
            valid = valid[self._belongs(rows.number, valid)]
            for piece in rows.pieces(base, valid):
                batches = piece.batches
                is_wanted = np.isin(batches["position"], valid["position"])
                is_wanted &= (batches["attributes"] & CONTROL_BIT) == 0
                for transaction in aborted:
                    is_wanted &= ~(
                        ((batches["attributes"] & TRANSACTIONAL_BIT) != 0)
                        & (batches["producer_id"] == transaction.producer_id)
                        & (batches["base_offset"] >= transaction.first_offset)
                        & (batches["base_offset"] <= transaction.last_offset)
                    )
                for records in piece.decode(np.flatnonzero(is_wanted), on_corrupt=_leave_out):
                    keyed = _keyed(records)
                    found.append(keyed[keyed["high"] % self._shares == share] if self._shares > 1 else keyed)
        joined = np.concatenate([np.empty(0, RECORD), *found])
        return joined[np.lexsort((joined["offset"], joined["low"], joined["high"]))]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """For some records, what another set has of the same keys."""

    is_there: NDArray[np.bool_]
    """The set has the record itself."""
    has_earlier: NDArray[np.bool_]
    has_later: NDArray[np.bool_]


def neighbours(records: NDArray[Any], others: NDArray[Any]) -> Neighbours:
    """REQUIRES: both are sorted by key and offset."""
    both = np.concatenate((records, others))
    is_other = np.concatenate((np.zeros(len(records), np.bool_), np.ones(len(others), np.bool_)))
    # Of the same record, that of `others` comes last.
    order = np.lexsort((is_other, both["offset"], both["low"], both["high"]))
    both, is_other = both[order], is_other[order]
    is_new_key = np.concatenate(([True], ~_is_same_key(both))) if len(both) else np.empty(0, np.bool_)
    groups = np.cumsum(is_new_key) - 1
    seen = np.cumsum(is_other)
    begins = np.flatnonzero(is_new_key)
    before = (seen - is_other)[begins][groups] if len(both) else seen
    total = seen[np.concatenate((begins[1:] - 1, [len(both) - 1]))][groups] if len(both) else seen
    here = np.flatnonzero(~is_other)
    following = np.minimum(here + 1, len(both) - 1)
    is_there = (
        is_other[following]
        & (following > here)
        & (groups[following] == groups[here])
        & (both["offset"][following] == both["offset"][here])
    )
    earlier = seen[here] - before[here] > 0
    later = total[here] - seen[here] - is_there > 0
    found = [np.empty(len(records), np.bool_) for _ in range(3)]
    for target, values in zip(found, (is_there, earlier, later), strict=True):
        target[order[here]] = values
    return Neighbours(*found)


def sorted_records(*parts: NDArray[Any]) -> NDArray[Any]:
    """By key and offset, each record once."""
    joined = np.concatenate(parts)
    joined = joined[np.lexsort((joined["offset"], joined["low"], joined["high"]))]
    is_again = _is_same_key(joined) & (joined["offset"][1:] == joined["offset"][:-1])
    return joined[np.concatenate(([True], ~is_again))] if len(joined) else joined


def _is_same_key(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each record, the first one left out, has the key of the one before."""
    found: NDArray[np.bool_] = (records["high"][1:] == records["high"][:-1]) & (
        records["low"][1:] == records["low"][:-1]
    )
    return found


def _keyed(records: DecodedRecords) -> NDArray[Any]:
    columns = records.columns
    found = np.empty(len(columns), RECORD)
    found["offset"] = columns.offset
    found["base_offset"] = records.batches["base_offset"][records.batch_row]
    found["is_tombstone"] = columns.value_length < 0
    has_key = columns.key_length >= 0
    found["high"] = columns.offset
    found["low"] = _NO_KEY
    digests = digests_of(records.data, columns.key_position[has_key], columns.key_length[has_key])
    found["high"][has_key] = digests[:, 0]
    found["low"][has_key] = digests[:, 1]
    return found


def _aborted(rows: CopyRows) -> Sequence[Any]:
    view = rows.copy.view
    with suppress(DuralogError):  # The index is damaged.
        return view.indexed_aborted_transactions(view.start_offset, view.end_offset)
    return ()


def _most_records(rows: CopyRows) -> int:
    found = 0
    for base in rows.bases:
        batches = rows.segment(base).rows
        found += int((batches["last_offset"] - batches["base_offset"] + 1).sum())
    return found


def _leave_out(_: CorruptRecord, row: int) -> None:
    """A batch with a right checksum whose records cannot be decoded."""
