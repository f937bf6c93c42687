"""The committed offsets of all groups, and those that wait for their transactions to end.

An offset that was committed within a transaction is pending until the transaction's marker is in the same partition of
`__consumer_offsets`: it counts if the transaction commits, unless something later was committed without one, and is
forgotten if it aborts. A tombstone takes a partition's offset away, the pending ones too.

Nothing is written or read here: the caller has written the records before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey

TopicOffsets = Mapping[str, Mapping[int, CommittedOffset]]
"""By topic and partition."""

_NOTHING: TopicOffsets = {}


class PartitionCommit(NamedTuple):
    """What a client wants to commit for a partition."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetTable:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[tuple[int, int], dict[OffsetKey, CommittedOffset]] = {}
        """By partition of `__consumer_offsets` and producer id."""
        self._open: dict[str, dict[str, dict[int, set[tuple[int, int]]]]] = {}
        """By group, topic and partition: which of `_pending` have something for it. Nothing in it is empty."""
        self._groups_of_topic: dict[str, set[str]] = {}
        """The groups that have an offset in a topic, be it committed or pending."""
        self._count = 0

    def __len__(self) -> int:
        """The number of committed offsets."""
        return self._count

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self._by_group.get(key.group_id, _NOTHING).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> TopicOffsets:
        return self._by_group.get(group_id, _NOTHING)

    def copy(self) -> dict[str, TopicOffsets]:
        """All committed offsets, for another thread."""
        return {
            group: {topic: dict(offsets) for topic, offsets in topics.items()}
            for group, topics in self._by_group.items()
        }

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether an offset of the partition waits for its transaction to end."""
        of_group = self._open.get(key.group_id)
        return of_group is not None and key.partition in of_group.get(key.topic, ())

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def keys_of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """Everything that the group has an offset for, committed or pending, each once."""
        for topic in dict.fromkeys((*self.of_group(group_id), *self._open.get(group_id, ()))):
            yield from self.keys_of(group_id, topic)

    def keys_of(self, group_id: str, topic: str) -> list[OffsetKey]:
        """Those of one topic."""
        committed, pending = self.of_group(group_id).get(topic, ()), self._open.get(group_id, {}).get(topic, ())
        return [OffsetKey(group_id, topic, partition) for partition in dict.fromkeys((*committed, *pending))]

    def groups_of_topic(self, topic: str) -> list[str]:
        return sorted(self._groups_of_topic.get(topic, ()))

    def pending_of(self, key: OffsetKey) -> Iterator[CommittedOffset]:
        for transaction in self._open.get(key.group_id, {}).get(key.topic, {}).get(key.partition, ()):
            yield self._pending[transaction][key]

    # Changes

    def clear(self) -> None:
        for table in (self._by_group, self._pending, self._open, self._groups_of_topic):
            table.clear()
        self._count = 0

    def put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        partitions = self._by_group.setdefault(key.group_id, {}).setdefault(key.topic, {})
        if not partitions:
            self._groups_of_topic.setdefault(key.topic, set()).add(key.group_id)
        self._count += key.partition not in partitions
        partitions[key.partition] = committed

    def put_pending(self, partition: int, producer_id: int, key: OffsetKey, committed: CommittedOffset) -> None:
        """`partition` is the one of `__consumer_offsets` that has the record, and will have the marker."""
        transaction = partition, producer_id
        self._pending.setdefault(transaction, {})[key] = committed
        of_topic = self._open.setdefault(key.group_id, {}).setdefault(key.topic, {})
        of_topic.setdefault(key.partition, set()).add(transaction)
        self._groups_of_topic.setdefault(key.topic, set()).add(key.group_id)

    def remove(self, key: OffsetKey) -> None:
        """The offset has a tombstone."""
        self._remove_committed(key)
        for transaction in self._open.get(key.group_id, {}).get(key.topic, {}).pop(key.partition, ()):
            del self._pending[transaction][key]
        self._tidy(key)

    def complete(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The transaction's marker is in this partition of `__consumer_offsets`."""
        transaction = partition, producer_id
        for key, committed in self._pending.pop(transaction, {}).items():
            of_topic = self._open[key.group_id][key.topic]
            of_topic[key.partition].discard(transaction)
            if not of_topic[key.partition]:
                del of_topic[key.partition]
            existing = self.get(key)
            if commit and (existing is None or existing.record_offset < committed.record_offset):
                self.put(key, committed)
            self._tidy(key)

    def _remove_committed(self, key: OffsetKey) -> None:
        topics = self._by_group.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self._by_group[key.group_id]

    def _tidy(self, key: OffsetKey) -> None:
        """Remove empty entries of a group and a topic without offsets."""
        open_ones = self._open.get(key.group_id)
        if open_ones is not None:
            if not open_ones.get(key.topic, True):
                del open_ones[key.topic]
            if not open_ones:
                del self._open[key.group_id]
        if key.topic in self.of_group(key.group_id) or key.topic in (open_ones or ()):
            return
        groups = self._groups_of_topic.get(key.topic)
        if groups is not None:
            groups.discard(key.group_id)
            if not groups:
                del self._groups_of_topic[key.topic]
