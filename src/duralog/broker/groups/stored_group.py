"""Changes to groups of a directory that no broker serves: the records that a broker would write, in its order.

The state is read from the partition of the group, to its end: committed transactions included, with what still waits
for its transaction to end. A broker that is started on the directory afterwards, this one or Kafka, finds what it would
have written itself.

The log may have members that never left: consumers that were connected when the broker stopped. A consumer that
reconnects would continue from its own position, and overwrite the new offsets. So a group with members is refused,
unless they are removed as well: then they are rejected when they reconnect, join again, and fetch the offsets.

REQUIRES: no other process writes to the log. A batch is in the log as a whole or not at all after a crash. A deletion
that was interrupted is completed when it is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.records import NO_TOPICS_HASH
from duralog.broker.groups.group import Group
from duralog.broker.groups.group_loading import load_partition, take_in
from duralog.broker.groups.known_groups import KnownGroups
from duralog.broker.groups.offsets.records import (
    CommittedOffset,
    OffsetKey,
    encode_offset_key,
    encode_offset_value,
)
from duralog.broker.groups.unserved_group import ShareGroup, StreamsGroup, UnservedGroup
from duralog.broker.topics.tombstone_batches import tombstone_batches
from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog

Place = tuple[str, int]
"""A topic and a partition."""


class StoredGroup:
    """A group in its partition of `__consumer_offsets`."""

    def __init__(self, group_id: str, log: PartitionLog, clock: Callable[[], int]) -> None:
        self._group_id = group_id
        self._log = log
        self._clock = clock
        self._known = KnownGroups(clock)
        take_in(self._known, log.partition, load_partition(log))

    @property
    def _group(self) -> Group | None:
        return self._known.by_id.get(self._group_id)

    @property
    def is_there(self) -> bool:
        return self._group is not None

    @property
    def members(self) -> list[str]:
        """The ids of the members in the log."""
        group = self._group
        return sorted(group.members) if isinstance(group, ClassicGroup | ConsumerGroup | UnservedGroup) else []

    @property
    def is_share_group(self) -> bool:
        """A share group must not be changed: part of its state is in a topic that only Kafka writes to."""
        return isinstance(self._group, ShareGroup)

    @property
    def committed(self) -> dict[Place, int]:
        of_group = self._known.offsets.of_group(self._group_id)
        return {(topic, number): found.offset for topic, parts in of_group.items() for number, found in parts.items()}

    def set_offsets(self, offsets: Mapping[Place, int], topic_ids: Mapping[str, UUID | None]) -> None:
        """Commit offsets in place of the group's members, which are removed if there are any."""
        now_ms = self._clock()
        commits = [
            (
                encode_offset_key(OffsetKey(self._group_id, *place)),
                encode_offset_value(CommittedOffset(offset, NO_LEADER_EPOCH, "", now_ms, None, topic_ids[place[0]])),
            )
            for place, offset in sorted(offsets.items())
        ]
        self._append([*_encoded(self._departure()), *commits])

    def delete(self) -> int:
        """Delete all offsets, pending ones included, then the group. Returns the number of offsets."""
        group = self._group
        assert group is not None
        keys = list(self._known.offsets.keys_of_group(self._group_id))
        most = self._log.config.max_message_bytes
        for some in tombstone_batches(keys, lambda key: len(key.group_id) + len(key.topic), most):
            self._append([(encode_offset_key(key), None) for key in some])
        self._append(_encoded(group.tombstones()))
        return len(keys)

    def _departure(self) -> list[CoordinatorRecord]:
        """The records that remove all members; none if there are none."""
        group, members = self._group, self.members
        if not members:
            return []
        if isinstance(group, ConsumerGroup):
            return group.departure_records(members, left=(), metadata_hash=NO_TOPICS_HASH)
        if isinstance(group, StreamsGroup):
            return group.member_tombstones()
        assert isinstance(group, ClassicGroup)
        for member_id in members:
            group.remove(member_id)
        group.begin_generation()
        return [group.record()]

    def _append(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        now_ms = self._clock()
        self._log.append([Record(key=key, value=value, timestamp_ms=now_ms) for key, value in records])


def _encoded(records: Iterable[CoordinatorRecord]) -> list[tuple[bytes, bytes | None]]:
    return [encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) for record in records]
