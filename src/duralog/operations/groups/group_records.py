"""Builds consumer groups from the records of `__consumer_offsets`.

Records may come partition by partition and in several steps: all records of a group are in one partition, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from duralog.client.groups import GroupMember, GroupOffset, GroupView
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, describe_record

_OFFSET_TYPES = ("OffsetCommit", "LegacyOffsetCommit")
_MEMBER_TYPES = ("ConsumerGroupMemberMetadata", "ShareGroupMemberMetadata", "StreamsGroupMemberMetadata")
_OTHER_KINDS = {"ShareGroup": "share", "StreamsGroup": "streams"}
"""By the prefix of their record types."""

EndOffset = Callable[[str, int], int | None]
"""The end offset of a partition; None if it no longer exists."""


class KeyAndValue(Protocol):
    """The parts of a record that are used."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(slots=True)
class _Group:
    classic: Mapping[str, Any] | None = None
    is_consumer: bool = False
    members: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: dict[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    others: dict[tuple[str, str | None], str] = field(default_factory=dict)
    """Records of share and streams groups: the kind of group, by record type and member."""

    @property
    def is_gone(self) -> bool:
        return self.classic is None and not self.has_newer_protocol and not self.offsets

    @property
    def has_newer_protocol(self) -> bool:
        """Members that have not committed are its only records."""
        return self.is_consumer or bool(self.members) or bool(self.others)

    @property
    def kind(self) -> str:
        if self.others:
            return next(iter(self.others.values()))
        return "consumer" if self.has_newer_protocol else "classic"


class GroupRecords:
    """All groups, after the records so far."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def add(self, record: KeyAndValue) -> None:
        described = describe_record(CONSUMER_OFFSETS, record.key, record.value)
        assert described is not None
        key, value = described["key"], described["value"]
        if not isinstance(key, dict) or isinstance(value, str):
            return  # A record type of a later version of Kafka.
        name = str(key.get("group", key.get("group_id")))
        group = self._groups.setdefault(name, _Group())
        _apply(group, described["type"], key, value)
        if group.is_gone:
            del self._groups[name]

    def views(self, end_offset: EndOffset) -> list[GroupView]:
        """By name."""
        return [_view(name, group, end_offset) for name, group in sorted(self._groups.items())]


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
    elif kind in _MEMBER_TYPES:
        if value is None:
            group.members.pop(key["member_id"], None)
        else:
            group.members[key["member_id"]] = value
    for beginning, other_kind in _OTHER_KINDS.items():
        if isinstance(kind, str) and kind.startswith(beginning):
            where = kind, key.get("member_id")
            if value is None:
                group.others.pop(where, None)
            else:
                group.others[where] = other_kind


def _view(name: str, group: _Group, end_offset: EndOffset) -> GroupView:
    offsets = [
        GroupOffset(
            topic=topic,
            partition=partition,
            committed=value["offset"],
            end_offset=end_offset(topic, partition),
            metadata=value["metadata"],
        )
        for (topic, partition), value in sorted(group.offsets.items())
    ]
    members = [
        GroupMember(
            member_id=member_id,
            instance_id=value.get("instance_id"),
            client_id=value["client_id"],
            host=value["client_host"],
            partitions=(),
        )
        for member_id, value in sorted(group.members.items())
    ]
    if group.classic is not None:
        members += [_classic_member(member) for member in group.classic["members"]]
    return GroupView(group=name, state=None, kind=group.kind, members=members, offsets=offsets)


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
