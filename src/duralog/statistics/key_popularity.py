"""How often each key of a partition occurs: how many keys occur once, twice and so on, and which are most frequent.

Keys are known by the first half of their digest, so two of them are taken for one with a chance of one in 10^5 among
twenty million. A tally holds 24 bytes for each key, twice as much while it grows. A partition with more keys than fit
into memory is counted in shares, one after the other, whose results are added.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.key_digests import Digests

Int64s = NDArray[np.int64]

_FEWEST_WAITING = 1 << 20


class FrequentKey(NamedTuple):
    records: int
    partition: int
    offset: int
    """Of one of its records."""


class HotKey(NamedTuple):
    """A frequent key."""

    key: bytes | None
    """Its first bytes; None if its records have gone since they were counted."""
    size_bytes: int
    """Of the whole key."""
    partition: int
    records: int


@dataclass(slots=True)
class Popularity:
    keys_by_records: dict[int, int] = field(default_factory=dict)
    """How many keys have one record, how many two, and so on."""
    frequent: list[FrequentKey] = field(default_factory=list)
    """Those with the most records, the most first."""

    def add(self, other: Popularity, frequent: int) -> None:
        """REQUIRES: no key is in both."""
        for records, keys in other.keys_by_records.items():
            self.keys_by_records[records] = self.keys_by_records.get(records, 0) + keys
        self.frequent = _most_frequent([*self.frequent, *other.frequent], frequent)

    def by_rank(self) -> RankedCounts:
        return RankedCounts(self.keys_by_records)


class RankedCounts(Sequence[int]):
    """The records of each key, the most first. Takes memory for each different number, not for each key."""

    def __init__(self, keys_by_records: dict[int, int]) -> None:
        self._records = sorted(keys_by_records, reverse=True)
        self._ends = np.cumsum([keys_by_records[records] for records in self._records], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, rank: int) -> int: ...
    @overload
    def __getitem__(self, rank: slice) -> list[int]: ...
    def __getitem__(self, rank: int | slice) -> int | list[int]:
        if isinstance(rank, slice):
            return [self[place] for place in range(*rank.indices(len(self)))]
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        return self._records[int(np.searchsorted(self._ends, rank, side="right"))]

    def records_of_first(self, keys: int) -> int:
        """How many records the first ranks have together."""
        begins = np.concatenate([[0], self._ends[:-1]])
        taken = np.clip(keys - begins, 0, self._ends - begins)
        return int((taken * np.array(self._records, np.int64)).sum())


class KeyTally:
    """Counts the records of each key. New records are buffered and sorted in together."""

    def __init__(self) -> None:
        self._names: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._counts: Int64s = np.empty(0, np.int64)
        self._offsets: Int64s = np.empty(0, np.int64)
        self._waiting: list[tuple[NDArray[np.uint64], Int64s]] = []
        self._waiting_count = 0

    def add(self, digests: Digests, offsets: Int64s) -> None:
        self._waiting.append((np.ascontiguousarray(digests[:, 0]), offsets))
        self._waiting_count += len(offsets)
        if self._waiting_count >= max(_FEWEST_WAITING, len(self._names)):
            self._sort_in()

    def popularity(self, partition: int, frequent: int) -> Popularity:
        self._sort_in()
        records, keys = np.unique(self._counts, return_counts=True)
        places = self._most_frequent(frequent)
        found = (FrequentKey(int(self._counts[place]), partition, int(self._offsets[place])) for place in places)
        return Popularity(
            dict(zip(records.tolist(), keys.tolist(), strict=True)),
            _most_frequent(found, frequent),
        )

    def _most_frequent(self, wanted: int) -> list[int]:
        """Where they are; of keys that come equally often, those whose last offset is lowest."""
        counts = self._counts
        if wanted >= len(counts) or not wanted:
            return list(range(len(counts) if wanted else 0))
        fewest = np.partition(counts, len(counts) - wanted)[len(counts) - wanted]
        above, equal = np.flatnonzero(counts > fewest), np.flatnonzero(counts == fewest)
        left = wanted - len(above)
        chosen = equal[np.argpartition(self._offsets[equal], left - 1)[:left]]
        return [*above.tolist(), *chosen.tolist()]

    def _sort_in(self) -> None:
        names = np.concatenate([self._names, *(names for names, _ in self._waiting)])
        offsets = np.concatenate([self._offsets, *(offsets for _, offsets in self._waiting)])
        counts = np.concatenate([self._counts, np.ones(len(names) - len(self._names), np.int64)])
        self._waiting, self._waiting_count = [], 0
        if not len(names):
            return
        order = np.argsort(names, kind="stable")
        names = names[order]
        begins = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
        ends = np.append(begins[1:], len(names)) - 1
        self._names = names[begins]
        self._counts = np.add.reduceat(counts[order], begins)
        # The last one of a key is the latest that was added: in a log that is being compacted, it stays longest.
        self._offsets = offsets[order][ends]


def _most_frequent(keys: Iterable[FrequentKey], wanted: int) -> list[FrequentKey]:
    return heapq.nsmallest(wanted, keys, key=lambda key: (-key.records, key.partition, key.offset))
