"""The member of a heartbeat: a known one, a new one, or one that replaces a static member.

A member with a wrong id or epoch is refused, so that it joins again.
"""

from __future__ import annotations

from dataclasses import replace

from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.heartbeat_request import HeartbeatRequest
from duralog.broker.groups.consumer.member import JOINING_EPOCH, STATIC_LEAVING_EPOCH, ConsumerMember
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
)


def dynamic_member(group: ConsumerGroup, asked: HeartbeatRequest, member_id: str) -> ConsumerMember:
    if asked.epoch == JOINING_EPOCH:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    member = group.member(member_id)
    _check_epoch(member, asked)
    return member


def static_member(
    group: ConsumerGroup, asked: HeartbeatRequest, instance_id: str, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member, and the one before it under the same instance id that it replaces, if there is one."""
    if asked.epoch != JOINING_EPOCH:
        member = known_static(group, instance_id, member_id)
        _check_epoch(member, asked)
        return member, None
    known = group.static_member(instance_id)
    if known is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id), None
    if known.classic is None and known.epoch != STATIC_LEAVING_EPOCH:
        raise GroupRefusal(
            UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the"
            f" instance id is owned by {known.member_id} member.",
        )
    return successor(known, member_id), known


def successor(known: ConsumerMember, member_id: str) -> ConsumerMember:
    """The next member under an instance id. It owns what the one before it did, and has reached no epoch yet."""
    return replace(known, member_id=member_id, epoch=0, previous_epoch=0)


def known_static(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """The member that has this instance id and this member id."""
    member = group.static_member(instance_id)
    if member is None:
        raise GroupRefusal(UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise GroupRefusal(
            FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _check_epoch(member: ConsumerMember, asked: HeartbeatRequest) -> None:
    if asked.epoch == member.epoch:
        return
    if asked.epoch > member.epoch:
        difference = "greater"
    elif asked.epoch == member.previous_epoch and _is_part_of(asked.owned, member):
        return  # The answer with the new epoch was lost.
    else:
        difference = "smaller"
    raise GroupRefusal(
        FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {difference} member epoch ({asked.epoch}) than the one known by the group"
        f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: Assignment | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        topic in member.assigned and numbers <= member.assigned[topic].keys() for topic, numbers in owned.items()
    )
