"""Members that speak the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

To such a member the group looks like a classic one with another leader. Its JoinGroup is the full heartbeat
of the newer protocol: it takes the member one step towards its target, and what it then owns is the answer to its
SyncGroup. When there is something new for it, its Heartbeat is answered with REBALANCE_IN_PROGRESS, and it joins again.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from duralog.broker.groups.classic.groups import JoinRequest, LeavingMember, SyncRequest
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.group_conversion import (
    DISABLED,
    by_topic_id,
    embedded_assignment,
    may_downgrade,
    policy,
)
from duralog.broker.groups.consumer.groups import ConsumerGroups
from duralog.broker.groups.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    Deadline,
    MemberState,
    without_epochs,
)
from duralog.broker.groups.consumer.member_change import MemberChange
from duralog.broker.groups.consumer.member_lookup import known_static, successor
from duralog.broker.groups.consumer_protocol import PROTOCOL_TYPE
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import (
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from duralog.broker.wire.request import Fields
from duralog.errors import CorruptRecord
from duralog.format.internal.embedded_protocol import SUBSCRIPTION, decode_embedded
from duralog.format.uuids import uuid_text


class MixedGroups:
    """REQUIRES of every request: its group is a consumer group, and of JoinGroup and SyncGroup that it has members."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._topics = groups.groups.topics
        self._runtime = groups.groups.runtime

    def join(self, request: JoinRequest) -> Fields:
        group = self._groups.consumer_group(request.group_id)
        if policy(self._runtime.config) == DISABLED:
            raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or uuid_text(uuid.uuid4().bytes)
        self._groups.check_room(group, member_id)
        if not _supports(group, request):
            raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)
        if request.needs_member_id and request.instance_id is None and not request.member_id:
            return {"error_code": MEMBER_ID_REQUIRED, "member_id": member_id}
        before, replaced = self._member(group, request, member_id)
        try:
            subscription = decode_embedded(SUBSCRIPTION, request.protocols[0][1])
        except CorruptRecord:
            raise GroupRefusal(UNKNOWN_SERVER_ERROR) from None
        member = replace(
            before,
            instance_id=request.instance_id or before.instance_id,
            rack_id=subscription.get("rack_id") or before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=frozenset(subscription["topics"]),
            topic_regex="",
            classic=ClassicMetadata(request.session_timeout_ms, tuple(request.protocols)),
        )
        owned = by_topic_id(subscription.get("owned_partitions") or (), self._topics)
        change = MemberChange(self._groups, group, before, member, replaced, [])
        now_ms = self._runtime.clock()
        change.take_in_subscription(now_ms, waits_for_patterns=False)
        members = change.members().values()
        if replaced is not None and replaced.classic is None and may_downgrade(members, self._runtime.config):
            is_stale = group.target_epoch < change.epoch
            if not is_stale:
                change.reconcile(owned)
            targets = {**group.targets, member_id: group.target_of(member)}
            if not self._groups.downgrade(group, members, targets, "its assignment is stale" if is_stale else None):
                raise GroupRefusal(GROUP_ID_NOT_FOUND)
        else:
            change.make_target(now_ms)
            change.reconcile(owned)
            written = change.write()
            self._groups.timers.cancel(written, member_id, Deadline.JOIN)
            self._groups.start_session(written, change.member)
            self._groups.timers.start(written, change.member, Deadline.SYNC, request.rebalance_timeout_ms)
        return {
            "error_code": NONE,
            "member_id": member_id,
            "generation_id": change.member.epoch,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": request.protocols[0][0],
        }

    def _member(
        self, group: ConsumerGroup, request: JoinRequest, member_id: str
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member, and the static one that it replaces, if it does."""
        if request.instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id), None
        if request.member_id:
            return known_static(group, request.instance_id, member_id), None
        known = group.static_member(request.instance_id)
        return (ConsumerMember(member_id=member_id), None) if known is None else (successor(known, member_id), known)

    def sync(self, request: SyncRequest) -> Fields:
        group = self._groups.consumer_group(request.group_id)
        member = self._classic_member(group, request.member_id, request.instance_id, request.generation)
        assert member.classic is not None
        name, subscription = member.classic.supported_protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)
        if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._wait_for_join(group, member)
            raise GroupRefusal(REBALANCE_IN_PROGRESS)
        self._groups.timers.cancel(group, member.member_id, Deadline.SYNC)
        self._groups.start_session(group, member)
        return {
            "error_code": NONE,
            "protocol_type": request.protocol_type,
            "protocol_name": request.protocol_name,
            "assignment": embedded_assignment(without_epochs(member.assigned), subscription, self._topics),
        }

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """The error code of the answer."""
        group = self._groups.consumer_group(group_id)
        member = self._classic_member(group, member_id, instance_id, generation)
        self._groups.start_session(group, member)
        if _has_news(group, member):
            self._wait_for_join(group, member)
            return REBALANCE_IN_PROGRESS
        return NONE

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[Fields]:
        """The answer for each member that leaves, of either protocol."""
        group = self._groups.consumer_group(group_id)
        answers: list[Fields] = []
        gone: dict[str, ConsumerMember] = {}
        for each in leaving:
            error_code = NONE
            try:
                member = _leaving_member(group, each)
                gone[member.member_id] = member
            except GroupRefusal as refusal:
                error_code = refusal.error_code
            answers.append(
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": error_code}
            )
        if gone:
            self._groups.fence(group, list(gone.values()))
        return answers

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = known_static(group, instance_id, member_id)
        if member.classic is None:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        if member.epoch != generation:
            raise GroupRefusal(ILLEGAL_GENERATION)
        return member

    def _wait_for_join(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._groups.timers.start_if_absent(group, member, Deadline.JOIN, member.rebalance_timeout_ms)


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    """Whether all who speak the classic protocol will have a protocol in common."""
    if request.protocol_type != PROTOCOL_TYPE:
        return False
    known = [
        {name for name, _ in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    return any(all(name in each for each in known) for name, _ in request.protocols)


def _has_news(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member has to join again: there is a newer target, or it can make progress towards its own."""
    if member.epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        group.is_owned(topic, partition)
        for topic, numbers in group.targets.get(member.member_id, {}).items()
        for partition in numbers
        if partition not in member.assigned.get(topic, {})
    )


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.instance_id is None:
        return group.member(leaving.member_id)
    # An administrator removes static members by their instance ids alone.
    member_id = leaving.member_id or group.static_members.get(leaving.instance_id, "")
    return known_static(group, leaving.instance_id, member_id)
