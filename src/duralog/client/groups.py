"""The consumer groups of a running broker: state, members and offsets, and changes of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duralog.client.connection import (
    ANSWER_SECONDS,
    Place,
    admin_client,
    admin_module,
    edge_offsets,
    errors_of,
    kafka_client,
)
from duralog.client.unknown_names import unknown_group
from duralog.config.plurals import plural
from duralog.errors import DuralogError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    topic: str
    partition: int
    committed: int | None
    """None for a partition that is assigned but has no committed offset."""
    end_offset: int | None
    """None if the partition no longer exists."""
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    group: str
    state: str | None
    """None for a group of a directory: only a running broker knows it."""
    kind: str
    members: Sequence[GroupMember] = ()
    offsets: Sequence[GroupOffset] = field(default=())

    @property
    def lag(self) -> int:
        return sum(offset.lag or 0 for offset in self.offsets)


class BrokerGroups:
    def __init__(self, address: str) -> None:
        self.where = self._address = address
        self._client = kafka_client()
        self._admin = admin_client(address)

    def views(self, names: Sequence[str] | None = None) -> list[GroupView]:
        """All groups, or those of these names."""
        with errors_of(self._address):
            if names is None:
                names = self.names()
            if not names:
                return []
            places = self.places()
            described = self._admin.describe_consumer_groups(list(names), request_timeout=ANSWER_SECONDS)
            groups = {name: described[name].result() for name in names}
            committed = {name: self._committed(name, places) for name in names}
            wanted = {place for offsets in committed.values() for place in offsets}
            wanted |= {place for group in groups.values() for member in group.members for place in _held(member)}
            ends: dict[Place, int] = {}
            if asked := [self._client.TopicPartition(*place) for place in sorted(wanted) if place in places]:
                ends = edge_offsets(self._admin, asked, latest=True)
        return [_view(name, groups[name], committed[name], ends) for name in names]

    def names(self) -> list[str]:
        with errors_of(self._address):
            listed = self._admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result()
        return sorted(group.group_id for group in listed.valid)

    def places(self) -> set[Place]:
        """All partitions."""
        with errors_of(self._address):
            topics = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        return {(name, number) for name, topic in topics.items() for number in topic.partitions}

    def committed(self, name: str) -> dict[Place, int]:
        """The committed offsets of a group. Raises if it has members."""
        with errors_of(self._address):
            described = self._admin.describe_consumer_groups([name], request_timeout=ANSWER_SECONDS)[name].result()
            self._check_no_members(name, len(described.members))
            return {place: found.offset for place, found in self._committed(name, self.places()).items()}

    def _check_no_members(self, name: str, count: int) -> None:
        if count:
            raise DuralogError(f"{self._address}: group {name} has {plural(count, 'member')}: stop them")

    def check(self, name: str) -> int:
        """The number of offsets of a group that can be deleted. Raises if it has members or does not exist."""
        (view,) = self.views([name])
        if view.state == "dead":
            raise unknown_group(name, self._address)
        self._check_no_members(name, len(view.members))
        return sum(offset.committed is not None for offset in view.offsets)

    def _committed(self, name: str, places: set[Place]) -> dict[Place, Any]:
        if not places:
            return {}
        # By name: confluent-kafka 2.16 crashes the process if all offsets of a group are requested at once.
        asked = self._client.ConsumerGroupTopicPartitions(
            name, [self._client.TopicPartition(*place) for place in sorted(places)]
        )
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=ANSWER_SECONDS)[name].result()
        return {(place.topic, place.partition): place for place in answer.topic_partitions if place.offset >= 0}

    def ranges(self, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
        """The start and end offsets of partitions."""
        with errors_of(self._address):
            asked = [self._client.TopicPartition(*place) for place in places]
            ends = edge_offsets(self._admin, asked, latest=True)
            return {
                place: (start, ends[place]) for place, start in edge_offsets(self._admin, asked, latest=False).items()
            }

    def offsets_at(self, places: Collection[Place], timestamp_ms: int) -> dict[Place, int]:
        """The first offsets at or after a time, of partitions that have one."""
        # Negative values mean the start or end of the log.
        spec = admin_module().OffsetSpec.for_timestamp(max(timestamp_ms, 0))
        with errors_of(self._address):
            asked = {self._client.TopicPartition(*place): spec for place in places}
            answers = self._admin.list_offsets(asked, request_timeout=ANSWER_SECONDS)
            found = {(place.topic, place.partition): int(answer.result().offset) for place, answer in answers.items()}
        return {place: offset for place, offset in found.items() if offset >= 0}

    def set_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        with errors_of(self._address):
            places = [self._client.TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
            asked = self._client.ConsumerGroupTopicPartitions(name, places)
            answer = self._admin.alter_consumer_group_offsets([asked], request_timeout=ANSWER_SECONDS)[name].result()
            for place in answer.topic_partitions:
                if place.error is not None:
                    raise self._client.KafkaException(place.error)

    def delete(self, name: str) -> None:
        with errors_of(self._address):
            self._admin.delete_consumer_groups([name], request_timeout=ANSWER_SECONDS)[name].result()


def _held(member: Any) -> list[Place]:
    return [(place.topic, place.partition) for place in member.assignment.topic_partitions]


def _view(name: str, group: Any, committed: Mapping[Place, Any], ends: Mapping[Place, int]) -> GroupView:
    members = [
        GroupMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            host=member.host,
            partitions=_held(member),
        )
        for member in group.members
    ]
    places = sorted({*committed, *(place for member in members for place in member.partitions)})
    offsets = [
        GroupOffset(
            topic=topic,
            partition=number,
            committed=committed[topic, number].offset if (topic, number) in committed else None,
            end_offset=ends.get((topic, number)),
            metadata=(committed[topic, number].metadata or "") if (topic, number) in committed else "",
        )
        for topic, number in places
    ]
    return GroupView(
        group=name,
        state=group.state.name.replace("_", " ").lower(),
        kind=group.type.name.lower(),
        members=members,
        offsets=offsets,
    )
