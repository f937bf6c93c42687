"""Consumer groups as a directory has them: read from `__consumer_offsets`, without a broker. Nothing is changed.

What only a running broker knows, whether a group's members are still there, is not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from duralog.cli.group_views import GroupMember, GroupOffset, GroupView
from duralog.cli.opened_store import opened_store
from duralog.cli.progress import Progress
from duralog.errors import UnknownTopic
from duralog.format.internal_topics import CONSUMER_OFFSETS, describe_record
from duralog.storage.isolation import Isolation
from duralog.storage.store import Store

_OFFSET_TYPES = ("OffsetCommit", "LegacyOffsetCommit")


@dataclass(slots=True)
class _Group:
    classic: Mapping[str, Any] | None = None
    is_consumer: bool = False
    members: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        return self.classic is None and not self.is_consumer and not self.offsets


def groups_of_store(directory: str, *, is_shown: bool = False) -> list[GroupView]:
    with opened_store(directory, read_only=True, server_properties=None) as store:
        if CONSUMER_OFFSETS not in store.topics():
            return []
        found = _read(store, is_shown=is_shown)
        return [_view(store, name, group) for name, group in sorted(found.items()) if not group.is_gone]


def _read(store: Store, *, is_shown: bool) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    logs = [store.partition(CONSUMER_OFFSETS, number) for number in store.partitions(CONSUMER_OFFSETS)]
    total = sum(log.end_offset - log.start_offset for log in logs)
    with Progress(total, unit="record", wanted=is_shown) as progress:
        for log in logs:
            progress.begin(f"{CONSUMER_OFFSETS}-{log.partition}")
            # What a transaction committed counts when the transaction does.
            for record in log.read(log.start_offset, isolation=Isolation.READ_COMMITTED):
                progress.advance(1)
                described = describe_record(CONSUMER_OFFSETS, record.key, record.value)
                assert described is not None
                key, value = described["key"], described["value"]
                if not isinstance(key, dict) or isinstance(value, str):
                    continue  # Of a later version of Kafka.
                group = groups.setdefault(str(key.get("group", key.get("group_id"))), _Group())
                _apply(group, described["type"], key, value)
    return groups


def _apply(group: _Group, kind: str | int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    if kind in _OFFSET_TYPES:
        place = key["topic"], key["partition"]
        if value is None:
            group.offsets.pop(place, None)
        else:
            group.offsets[place] = value
    elif kind == "GroupMetadata":
        group.classic = value
    elif kind == "ConsumerGroupMetadata":
        group.is_consumer = value is not None
    elif kind == "ConsumerGroupMemberMetadata":
        if value is None:
            group.members.pop(key["member_id"], None)
        else:
            group.members[key["member_id"]] = value


def _view(store: Store, name: str, group: _Group) -> GroupView:
    offsets = [
        GroupOffset(
            topic=topic,
            partition=partition,
            committed=value["offset"],
            end_offset=_end_offset(store, topic, partition),
            metadata=value["metadata"],
        )
        for (topic, partition), value in sorted(group.offsets.items())
    ]
    members = [
        GroupMember(
            member_id=member_id,
            instance_id=value["instance_id"],
            client_id=value["client_id"],
            host=value["client_host"],
            partitions=(),
        )
        for member_id, value in sorted(group.members.items())
    ]
    if group.classic is not None:
        members += [_classic_member(member) for member in group.classic["members"]]
    kind = "consumer" if group.is_consumer else "classic"
    return GroupView(group=name, state=None, kind=kind, members=members, offsets=offsets)


def _classic_member(member: Mapping[str, Any]) -> GroupMember:
    assignment = member["assignment"]
    assigned = assignment["assigned_partitions"] if isinstance(assignment, dict) else []
    return GroupMember(
        member_id=member["member_id"],
        instance_id=member.get("group_instance_id"),
        client_id=member["client_id"],
        host=member["client_host"],
        partitions=[(entry["topic"], number) for entry in assigned for number in entry["partitions"]],
    )


def _end_offset(store: Store, topic: str, partition: int) -> int | None:
    try:
        return store.partition(topic, partition).end_offset
    except UnknownTopic:
        return None
