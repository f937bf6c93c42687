"""Consumer groups as a running broker tells of them, and what can be done to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duralog.cli.common.tables import plural
from duralog.client.group_views import GroupMember, GroupOffset, GroupView, no_such_group
from duralog.client.target import (
    ANSWER_SECONDS,
    admin_client,
    client_settings,
    edge_offsets,
    kafka_client,
    told_by_broker,
)
from duralog.errors import DuralogError

Place = tuple[str, int]


class BrokerGroups:
    def __init__(self, address: str) -> None:
        self._address = address
        self._client = kafka_client()
        self._admin = admin_client(address)

    def views(self, names: Sequence[str] | None = None) -> list[GroupView]:
        """Of all groups, or of these."""
        with told_by_broker(self._address):
            if names is None:
                listed = self._admin.list_consumer_groups(request_timeout=ANSWER_SECONDS).result()
                names = sorted(group.group_id for group in listed.valid)
            if not names:
                return []
            places = self._places()
            described = self._admin.describe_consumer_groups(list(names), request_timeout=ANSWER_SECONDS)
            groups = {name: described[name].result() for name in names}
            committed = {name: self._committed(name, places) for name in names}
            wanted = {place for offsets in committed.values() for place in offsets}
            wanted |= {place for group in groups.values() for member in group.members for place in _held(member)}
            ends: dict[Place, int] = {}
            if asked := [self._client.TopicPartition(*place) for place in sorted(wanted) if place in places]:
                ends = edge_offsets(self._admin, asked, latest=True)
        return [_view(name, groups[name], committed[name], ends) for name in names]

    def committed(self, name: str) -> dict[Place, int]:
        """What the group has committed."""
        with told_by_broker(self._address):
            return {place: found.offset for place, found in self._committed(name, self._places()).items()}

    def check(self, name: str) -> int:
        """How many offsets go with the group. Refused if it may not be deleted."""
        (view,) = self.views([name])
        if view.state == "dead":
            raise no_such_group(name, self._address)
        if view.members:
            raise DuralogError(f"{self._address}: group {name} has {plural(len(view.members), 'member')}: stop them")
        return sum(offset.committed is not None for offset in view.offsets)

    def _places(self) -> set[Place]:
        topics = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        return {(name, number) for name, topic in topics.items() for number in topic.partitions}

    def _committed(self, name: str, places: set[Place]) -> dict[Place, Any]:
        if not places:
            return {}
        # By name: asked for all of a group's offsets at once, the client of 2.16 ends the process.
        asked = self._client.ConsumerGroupTopicPartitions(
            name, [self._client.TopicPartition(*place) for place in sorted(places)]
        )
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=ANSWER_SECONDS)[name].result()
        return {(place.topic, place.partition): place for place in answer.topic_partitions if place.offset >= 0}

    def targets(
        self, topic: str, partition: int | None, *, offset: int | None, timestamp_ms: int | None, latest: bool
    ) -> dict[Place, int]:
        """Where to set a group's offsets to, within what the partitions hold."""
        with told_by_broker(self._address):
            places = sorted(place for place in self._places() if place[0] == topic and partition in (None, place[1]))
            if not places:
                which = topic if partition is None else f"partition {partition} of {topic}"
                raise DuralogError(f"there is no {which}")
            consumer = self._client.Consumer(
                client_settings(self._address, **{"group.id": "duralog-group", "enable.auto.commit": False})
            )
            try:
                return {
                    place: self._target(consumer, place, offset=offset, timestamp_ms=timestamp_ms, latest=latest)
                    for place in places
                }
            finally:
                consumer.close()

    def _target(
        self, consumer: Any, place: Place, *, offset: int | None, timestamp_ms: int | None, latest: bool
    ) -> int:
        low, high = consumer.get_watermark_offsets(self._client.TopicPartition(*place), timeout=ANSWER_SECONDS)
        if offset is not None:
            return int(min(max(offset, low), high))
        if timestamp_ms is not None:
            (found,) = consumer.offsets_for_times(
                [self._client.TopicPartition(*place, max(timestamp_ms, 0))], timeout=ANSWER_SECONDS
            )
            return int(found.offset if found.offset >= 0 else high)
        return int(high if latest else low)

    def set_offsets(self, name: str, offsets: Mapping[Place, int]) -> None:
        with told_by_broker(self._address):
            places = [self._client.TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
            asked = self._client.ConsumerGroupTopicPartitions(name, places)
            answer = self._admin.alter_consumer_group_offsets([asked], request_timeout=ANSWER_SECONDS)[name].result()
            for place in answer.topic_partitions:
                if place.error is not None:
                    raise self._client.KafkaException(place.error)

    def delete(self, name: str) -> None:
        with told_by_broker(self._address):
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
