"""The assignors of the server for consumer groups, `uniform` and `range`.

An assignor gets every member with its subscription and its last assignment, and the number of partitions of each topic.
It is a pure function. What must be true of every result:

- each partition of a subscribed topic has exactly one owner, and that member is subscribed to the topic;
- no member gets a topic that does not exist, or a partition that its topic does not have.

`uniform` balances and moves as few partitions as possible; with different subscriptions, balance comes first and moves
second. `range` gives each member adjacent partitions of each topic, the same numbers in topics with as many partitions,
so that topics can be joined by key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic. There is no topic without partitions in it."""

NO_PARTITIONS: Final[Assignment] = {}

_UUID_HALVES = struct.Struct(">qq")
_MOST_ROUNDS = 16
"""Rounds of balancing over all topics. With overlapping subscriptions, each round about halves the imbalance."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it."""

    member_id: str
    topics: frozenset[UUID]
    """Topics that exist only."""
    assigned: Assignment = field(default_factory=dict)
    """Its last assignment."""
    instance_id: str | None = None


Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], dict[str, Assignment]]


def assign_range(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Adjacent partitions of each topic for each member. Static members come first."""
    in_order = sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
    shares: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic, subscribers in _subscribers_by_topic(in_order).items():
        quota, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for place, index in enumerate(subscribers):
            end = start + quota + (place < extra)
            if end > start:
                shares[in_order[index].member_id][topic] = frozenset(range(start, end))
            start = end
    return {**shares}


def assign_uniform(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """As balanced as possible over all topics, and then with as few moves as possible."""
    if not members:
        return {}
    if all(member.topics == members[0].topics for member in members):
        return _fill_quotas(members, partition_counts)
    return _Balancing(members, partition_counts).result()


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By their names on the wire."""


def _fill_quotas(members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """All members have the same subscription: two of them differ by one partition at most."""
    topics = members[0].topics
    total = sum(partition_counts[topic] for topic in topics)
    quota, extra = divmod(total, len(members))
    shares: list[dict[UUID, set[int]]] = []
    room: list[int] = []
    revoked: list[tuple[UUID, int]] = []
    owned: set[tuple[UUID, int]] = set()
    for member in members:
        kept: dict[UUID, set[int]] = {}
        space = quota + (extra > 0)
        for topic, partitions in member.assigned.items():
            if topic not in topics:
                continue
            for partition in sorted(partitions):
                if (topic, partition) in owned or partition >= partition_counts[topic]:
                    continue
                owned.add((topic, partition))
                if space:
                    kept.setdefault(topic, set()).add(partition)
                    space -= 1
                else:
                    revoked.append((topic, partition))
        if extra and space == 0:
            extra -= 1
        elif extra:
            space -= 1
        shares.append(kept)
        room.append(space)
    waiting = [
        (topic, partition)
        for topic in sorted(topics, key=_topic_order)
        for partition in range(partition_counts[topic])
        if (topic, partition) not in owned
    ]
    # The last members take the extra partitions that no earlier member has kept.
    for index in reversed(range(len(members))):
        if extra and _size(shares[index]) + room[index] == quota:
            room[index] += 1
            extra -= 1
    unowned = iter([*waiting, *revoked])
    for kept, space in zip(shares, room, strict=True):
        for _ in range(space):
            topic, partition = next(unowned)
            kept.setdefault(topic, set()).add(partition)
    return {member.member_id: _frozen(kept) for member, kept in zip(members, shares, strict=True)}


class _Balancing:
    """Members have different subscriptions.

    Unowned partitions go, topic by topic, to the subscriber that has least; then partitions move from those that have
    most to those that have least, until no topic can be balanced further, or for a number of rounds.
    """

    def __init__(self, members: Sequence[Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        self._members = members
        self._counts = partition_counts
        self._subscribers = _subscribers_by_topic(members)
        self._sizes = [0] * len(members)
        self._owners: dict[UUID, list[int | None]] = {
            topic: [None] * partition_counts[topic] for topic in self._subscribers
        }
        for index, member in enumerate(members):
            for topic, partitions in member.assigned.items():
                if topic in member.topics:
                    for partition in partitions:
                        if partition < partition_counts[topic] and self._owners[topic][partition] is None:
                            self._give(topic, partition, index)

    def result(self) -> dict[str, Assignment]:
        topics = sorted(self._subscribers, key=self._order_of_topic)
        for topic in topics:
            least_loaded = self._by_load(topic)
            unowned = [number for number, owner in enumerate(self._owners[topic]) if owner is None]
            for partition in unowned:
                index = least_loaded[0][1]
                self._give(topic, partition, index)
                heapreplace(least_loaded, (self._sizes[index], index))
        shared = [topic for topic in topics if len(self._subscribers[topic]) > 1]
        for _ in range(_MOST_ROUNDS):
            if sum(self._balance(topic) for topic in shared) == 0:
                break
        shares: list[dict[UUID, set[int]]] = [{} for _ in self._members]
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assert owner is not None
                shares[owner].setdefault(topic, set()).add(partition)
        return {member.member_id: _frozen(share) for member, share in zip(self._members, shares, strict=True)}

    def _balance(self, topic: UUID) -> int:
        """Move this topic's partitions while that improves the balance. Returns the number of moves."""
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            assert owner is not None
            held.setdefault(owner, []).append(partition)
        least_loaded = self._by_load(topic)
        most_loaded = [(-self._sizes[index], -index) for index in held]
        heapify(most_loaded)
        moved = 0
        # A giver has more than the others, a taker less. No member is both, so the other heap stays valid.
        while most_loaded and -most_loaded[0][0] - least_loaded[0][0] > 1:
            giver, taker = -most_loaded[0][1], least_loaded[0][1]
            self._give(topic, held[giver].pop(), taker)
            moved += 1
            heapreplace(least_loaded, (self._sizes[taker], taker))
            if held[giver]:
                heapreplace(most_loaded, (-self._sizes[giver], -giver))
            else:
                heappop(most_loaded)
        return moved

    def _give(self, topic: UUID, partition: int, index: int) -> None:
        owner = self._owners[topic][partition]
        if owner is not None:
            self._sizes[owner] -= 1
        self._owners[topic][partition] = index
        self._sizes[index] += 1

    def _by_load(self, topic: UUID) -> list[tuple[int, int]]:
        """The topic's subscribers as a heap, those with the fewest partitions first."""
        loads = [(self._sizes[index], index) for index in self._subscribers[topic]]
        heapify(loads)
        return loads

    def _order_of_topic(self, topic: UUID) -> tuple[float, int, tuple[int, int]]:
        """Those first whose partitions weigh most on each of their subscribers."""
        subscribers = len(self._subscribers[topic])
        return -self._counts[topic] / subscribers, subscribers, _topic_order(topic)


def _subscribers_by_topic(members: Sequence[Subscriber]) -> dict[UUID, list[int]]:
    subscribers: dict[UUID, list[int]] = {}
    for index, member in enumerate(members):
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(index)
    return subscribers


def _topic_order(topic: UUID) -> tuple[int, int]:
    """Ids as Kafka compares them: two signed numbers."""
    high, low = _UUID_HALVES.unpack(topic.bytes)
    return high, low


def _size(share: Mapping[UUID, set[int]]) -> int:
    return sum(map(len, share.values()))


def _frozen(share: Mapping[UUID, set[int]]) -> Assignment:
    return {topic: frozenset(partitions) for topic, partitions in share.items()}
