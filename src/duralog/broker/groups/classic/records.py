"""The record of a classic group in `__consumer_offsets`: written in the version of Kafka 4.3.1, read in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from duralog.format.internal.coordinator_records import CoordinatorRecord

if TYPE_CHECKING:
    from duralog.broker.groups.classic.group import ClassicGroup

GROUP_METADATA: Final = 2
_TYPE_NAME: Final = "GroupMetadata"
_VERSION: Final = 3
_UNKNOWN_TIME: Final = -1


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
    """The group as it is, but with these assignments, or with those that the members have."""
    name = group.protocol_name
    members = []
    for member in group.members.values():
        assert name is not None, "a group with members is written when it has chosen a protocol"
        members.append(
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.metadata(name),
                "assignment": member.assignment if assignments is None else assignments[member.member_id],
            }
        )
    return _record(
        group.group_id,
        {
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "protocol": name,
            "leader": group.leader_id,
            "current_state_timestamp": _UNKNOWN_TIME if group.state_timestamp_ms is None else group.state_timestamp_ms,
            "members": members,
        },
    )


def new_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """A group that is about to get its first member."""
    return _record(
        group_id,
        {
            "protocol_type": "",
            "generation": 0,
            "protocol": None,
            "leader": None,
            "current_state_timestamp": now_ms,
            "members": [],
        },
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return _record(group_id, None)


def _record(group_id: str, value: Mapping[str, Any] | None) -> CoordinatorRecord:
    return CoordinatorRecord(
        type_id=GROUP_METADATA,
        type_name=_TYPE_NAME,
        key={"group": group_id},
        version=None if value is None else _VERSION,
        value=value,
    )
