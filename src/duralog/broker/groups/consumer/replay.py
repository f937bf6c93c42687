"""Consumer groups from their records: applies each record to the groups.

It is called for every record right after it was appended, and for the last record of each key when the broker starts.
Then a record may refer to what was deleted after it was written, and a tombstone to what does not exist: such records
have no effect. So do records for a group of another kind: something other than a coordinator wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.consumer.group import NO_TARGET_EPOCH, ConsumerGroup
from duralog.broker.groups.consumer.member import LEAVING_EPOCH, ConsumerMember
from duralog.broker.groups.consumer.records import (
    CURRENT_ASSIGNMENT,
    GROUP_METADATA,
    MEMBER_METADATA,
    PARTITION_METADATA,
    REGULAR_EXPRESSION,
    TARGET_MEMBER,
    TARGET_METADATA,
    current_assignment_fields,
    regex_of,
    subscription_fields,
    target_of,
)
from duralog.broker.groups.group import Group, misfit
from duralog.format.internal.coordinator_records import CoordinatorRecord


def replay(groups: MutableMapping[str, Group], record: CoordinatorRecord) -> str | None:
    """Apply a record of one of the types of consumer groups. Returns why it has no effect, if it does not fit.

    REQUIRES: its version is known.
    """
    assert not isinstance(record.key, bytes)
    assert not isinstance(record.value, bytes)
    group_id: str = record.key["group_id"]
    group = groups.get(group_id)
    if record.value is None:
        if isinstance(group, ConsumerGroup):
            _take_away(groups, group, record.type_id, record.key)
        return None
    if group is None or (isinstance(group, ClassicGroup) and group.is_simple):
        group = groups[group_id] = ConsumerGroup(group_id)
    if not isinstance(group, ConsumerGroup):
        return misfit(group, record)
    _put(group, record.type_id, record.key, record.value)
    return None


def _put(group: ConsumerGroup, type_id: int, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    if type_id == GROUP_METADATA:
        group.epoch, group.metadata_hash = value["epoch"], value["metadata_hash"]
    elif type_id == PARTITION_METADATA:
        group.has_partition_metadata_record = True
    elif type_id == MEMBER_METADATA:
        group.update_member(replace(_member(group, key), **subscription_fields(value)))
    elif type_id == TARGET_METADATA:
        group.target_epoch, group.target_made_at_ms = value["assignment_epoch"], value["assignment_timestamp"]
    elif type_id == TARGET_MEMBER:
        group.targets[key["member_id"]] = target_of(value)
    elif type_id == CURRENT_ASSIGNMENT:
        group.update_member(replace(_member(group, key), **current_assignment_fields(value)))
    elif type_id == REGULAR_EXPRESSION:
        group.set_resolved_regex(key["regular_expression"], regex_of(value))


def _take_away(groups: MutableMapping[str, Group], group: ConsumerGroup, type_id: int, key: Mapping[str, Any]) -> None:
    if type_id == GROUP_METADATA:
        if not group.members:
            group.cancel_timers()
            del groups[group.group_id]
    elif type_id == PARTITION_METADATA:
        group.has_partition_metadata_record = False
    elif type_id == MEMBER_METADATA:
        group.remove_member(key["member_id"])
        group.cancel_timers_of(key["member_id"])
    elif type_id == TARGET_METADATA:
        group.target_epoch, group.target_made_at_ms = NO_TARGET_EPOCH, 0
    elif type_id == TARGET_MEMBER:
        group.targets.pop(key["member_id"], None)
    elif type_id == CURRENT_ASSIGNMENT:
        member = group.members.get(key["member_id"])
        if member is not None:
            leaving = replace(member, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH)
            group.update_member(replace(leaving, assigned={}, pending_revocation={}))
    elif type_id == REGULAR_EXPRESSION:
        group.set_resolved_regex(key["regular_expression"], None)


def _member(group: ConsumerGroup, key: Mapping[str, Any]) -> ConsumerMember:
    return group.members.get(key["member_id"]) or ConsumerMember(member_id=key["member_id"])
