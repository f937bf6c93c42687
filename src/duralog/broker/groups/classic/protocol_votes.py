"""Which protocol a classic group will use: of those that all members know, the one that most members prefer.

With as many votes, Kafka takes the first one in the order of its hash table. That order follows from Java's hash of the
names, so that the same one is chosen here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from duralog.format.java_hash import java_hash

_SMALLEST_TABLE = 16


class ProtocolCounts:
    """The number of members that know each protocol."""

    def __init__(self) -> None:
        self._known_by: dict[str, int] = {}

    def add(self, names: Iterable[str]) -> None:
        """Of one member, which may name a protocol twice."""
        for name in set(names):
            self._known_by[name] = self._known_by.get(name, 0) + 1

    def remove(self, names: Iterable[str]) -> None:
        for name in set(names):
            self._known_by[name] -= 1
            if not self._known_by[name]:
                del self._known_by[name]

    def is_any_known_by(self, count: int, names: Iterable[str]) -> bool:
        return any(self._known_by.get(name, 0) == count for name in names)

    def known_by(self, count: int) -> set[str]:
        return {name for name, known_by in self._known_by.items() if known_by == count}


def elect(ballots: Iterable[Iterable[str]], candidates: Collection[str]) -> str:
    """Each ballot has the names that a member knows, best first. REQUIRES: every one has a candidate."""
    votes = Counter(next(name for name in ballot if name in candidates) for ballot in ballots)
    most = max(votes.values())
    return next(name for name in hash_map_order(votes) if votes[name] == most)


def hash_map_order(names: Iterable[str]) -> list[str]:
    """The names, each once, in the order in which a Java `HashMap` gives them back that they were put into."""
    distinct = list(dict.fromkeys(names))
    table = _SMALLEST_TABLE
    while len(distinct) > table * 3 // 4:
        table *= 2
    # Within a bucket, entries stay in the order of insertion.
    return sorted(distinct, key=lambda name: _spread(java_hash(name)) & (table - 1))


def _spread(number: int) -> int:
    unsigned = number & 0xFFFF_FFFF
    return unsigned ^ (unsigned >> 16)
