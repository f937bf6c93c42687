"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, checked in Kafka's order.

A new member without an instance id first gets a member id, and joins with it: so a client whose connection breaks while
it waits does not leave a member behind with each attempt. A static member that comes back under its instance id takes
its old place, and a stable group does not rebalance.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.classic.members import AnswerTo, ClassicMember, Protocols
from duralog.broker.groups.classic.membership import NO_MEMBER
from duralog.broker.groups.classic.rebalance import ClassicRebalance
from duralog.broker.groups.classic.records import new_group_record
from duralog.broker.groups.group import Group
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.groups.unserved_group import UnservedGroup
from duralog.broker.net.log_lines import logger
from duralog.broker.wire.error_codes import (
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)
from duralog.broker.wire.request import Fields

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member's first JoinGroup may wait: it cannot show that it is alive meanwhile."""

MOST_PENDING_MEMBERS: Final = 10_000
"""Member ids of a group that are not used yet: beyond it the oldest is forgotten. Kafka has no such bound."""


_LONGEST_ID: Final = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_member_id: bool
    """The client knows that it may get a member id to join with."""
    skips_assignment: bool
    """The client knows that a leader may have to skip the assignment."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    member_id: str
    instance_id: str | None
    reason: str | None = None


class ClassicGroups:
    """All classic groups, as their members' requests reach them."""

    def __init__(self, groups: LoggedGroups) -> None:
        self._groups = groups
        self._runtime = groups.runtime
        self.rebalance = ClassicRebalance(groups)

    def loaded(self) -> None:
        """The log is loaded: start the session of every member."""
        for group in list(self._groups.by_id.values()):
            if isinstance(group, ClassicGroup):
                self.rebalance.resume(group)

    # JoinGroup

    def join(self, request: JoinRequest, answer: AnswerTo) -> None:
        """Answers now, or when the group has its next generation. Refuses by raising GroupRefusal."""
        group = self._groups.by_id.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if isinstance(group, UnservedGroup):
                group.check_classic_join()
            if request.member_id != NO_MEMBER:
                answer({"error_code": UNKNOWN_MEMBER_ID, "member_id": request.member_id})
                return
            if not request.protocol_type or not request.protocols:
                answer({"error_code": INCONSISTENT_GROUP_PROTOCOL, "member_id": NO_MEMBER})
                return
            group = self._new_group(request.group_id, group)
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            answer({"error_code": GROUP_MAX_SIZE_REACHED, "member_id": NO_MEMBER})
        elif not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            answer({"error_code": INCONSISTENT_GROUP_PROTOCOL, "member_id": request.member_id})
        elif request.member_id == NO_MEMBER:
            self._join_first(group, request, answer)
        elif request.member_id in group.pending_members:
            if request.instance_id is not None:
                raise GroupRefusal(UNKNOWN_SERVER_ERROR)  # The id was given to a client without an instance id.
            self._add(group, request, request.member_id, answer)
        else:
            self._join_again(group, request, answer)

    def _new_group(self, group_id: str, replaced: Group | None) -> ClassicGroup:
        """A new group, which replaces an empty one of another kind if there is one. Its offsets stay."""
        now_ms = self._runtime.clock()
        tombstones = [] if replaced is None else replaced.tombstones()
        self._groups.append(group_id, [*tombstones, new_group_record(group_id, now_ms)], replay=False)
        self._groups.remove(group_id)
        group = ClassicGroup(group_id, self._runtime.clock, state_timestamp_ms=now_ms)
        self._groups.by_id[group_id] = group
        return group

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._runtime.config.group_max_size
        member = group.members.get(member_id)
        if group.is_in(ClassicState.PREPARING):
            return (member is not None and member.is_awaiting_join) or group.awaiting_joins < most
        if group.is_in(ClassicState.COMPLETING, ClassicState.STABLE):
            return member is not None or len(group.members) < most
        return True

    def _join_first(self, group: ClassicGroup, request: JoinRequest, answer: AnswerTo) -> None:
        if request.instance_id is not None:
            member_id = _new_member_id(request.instance_id)
            if request.instance_id in group.static_members:
                self._replace_static(group, request, request.instance_id, member_id, answer)
            else:
                self._add(group, request, member_id, answer)
            return
        member_id = _new_member_id(request.client_id)
        if not request.needs_member_id:
            self._add(group, request, member_id, answer)
            return
        if len(group.pending_members) >= MOST_PENDING_MEMBERS:
            group.forget_pending(next(iter(group.pending_members)))
        forget = partial(self.rebalance.forget_pending_member, group, member_id)
        group.add_pending(member_id, self._runtime.timers.after(request.session_timeout_ms, forget))
        answer({"error_code": MEMBER_ID_REQUIRED, "member_id": member_id})

    def _join_again(self, group: ClassicGroup, request: JoinRequest, answer: AnswerTo) -> None:
        try:
            member = group.check_member(request.member_id, request.instance_id)
        except GroupRefusal as refusal:
            answer({"error_code": refusal.error_code, "member_id": request.member_id})
            return
        is_leader = member.member_id == group.leader_id
        is_same = list(member.protocols) == list(request.protocols)
        if group.is_in(ClassicState.EMPTY, ClassicState.DEAD):
            answer({"error_code": UNKNOWN_MEMBER_ID, "member_id": request.member_id})
        elif is_same and group.is_in(ClassicState.COMPLETING):
            # The answer to its first JoinGroup of this generation may have been lost.
            answer(self.rebalance.joined(group, member, with_members=is_leader))
        elif is_same and not is_leader and group.is_in(ClassicState.STABLE):
            answer(self.rebalance.joined(group, member, with_members=False))
        else:
            # The leader of a stable group may want another assignment although no member has changed.
            timeouts = request.rebalance_timeout_ms, request.session_timeout_ms
            group.update(member, request.protocols, *timeouts, answer)
            self.rebalance.begin_or_go_on(group, f"{member.member_id} joins again ({_reason(request.reason)})")

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str, answer: AnswerTo) -> None:
        member = ClassicMember(
            member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )
        if group.is_in(ClassicState.PREPARING) and group.previous_state is ClassicState.EMPTY:
            group.has_new_member = True
        group.add(member, request.protocol_type, answer)
        self.rebalance.keep_alive(group, member, NEW_MEMBER_TIMEOUT_MS)
        self.rebalance.begin_or_go_on(group, f"{member_id} joins ({_reason(request.reason)})")

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, instance_id: str, member_id: str, answer: AnswerTo
    ) -> None:
        old = group.members[group.static_members[instance_id]]
        leader_before = group.leader_id
        member = group.replace_static(instance_id, member_id)
        self.rebalance.keep_alive(group, member)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, answer)
        if not group.is_in(ClassicState.STABLE):
            # When the leader assigns, it knows the old id: the new one would get nothing.
            if group.is_in(ClassicState.COMPLETING):
                self.rebalance.begin(group, f"static member {instance_id} is back as {member_id}")
            else:
                self.rebalance.go_on(group)
            return
        if group.choose_protocol() != group.protocol_name:
            self.rebalance.begin_or_go_on(group, f"static member {instance_id} is back with other protocols")
            return
        try:
            self._groups.append(group.group_id, [group.record()], replay=False)
        except GroupRefusal as refusal:
            group.answer_join(member, {"error_code": refusal.error_code, "member_id": NO_MEMBER})
            self._take_back(group, old)
            return
        is_leader = member_id == group.leader_id
        if request.skips_assignment:
            joined = self.rebalance.joined(group, member, with_members=is_leader, skip_assignment=is_leader)
        else:
            # It must not act as leader: it would assign again, and the other members would not notice.
            joined = {**self.rebalance.joined(group, member, with_members=False), "leader": leader_before}
        group.answer_join(member, joined)

    def _take_back(self, group: ClassicGroup, old: ClassicMember) -> None:
        """The new id of a static member could not be written: restore the old one."""
        assert old.instance_id is not None
        restored = group.replace_static(old.instance_id, old.member_id)
        group.update(restored, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms, None)
        self.rebalance.keep_alive(group, restored)

    # SyncGroup

    def sync(self, request: SyncRequest, answer: AnswerTo) -> None:
        """Answers now, or when the leader has assigned. Refuses by raising GroupRefusal."""
        group = self._known(request.group_id)
        if group.is_empty:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise GroupRefusal(ILLEGAL_GENERATION)
        if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
            None,
            group.protocol_name,
        ):
            raise GroupRefusal(INCONSISTENT_GROUP_PROTOCOL)
        if group.is_in(ClassicState.PREPARING):
            raise GroupRefusal(REBALANCE_IN_PROGRESS)
        self.rebalance.synced(group, member)
        if group.is_in(ClassicState.STABLE):
            answer(self.rebalance.assignment_of(group, member))
            return
        # It has sent the request again, on another connection: the first one must not wait forever.
        group.answer_sync(member, {"error_code": REBALANCE_IN_PROGRESS, "assignment": b""})
        member.awaiting_sync = answer
        if member.member_id == group.leader_id:
            self.rebalance.assign(group, request.assignments)

    # Heartbeat

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """The error code of the answer. Refuses by raising GroupRefusal."""
        group = self._known(group_id)
        member = group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise GroupRefusal(ILLEGAL_GENERATION)
        if group.is_empty:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        self.rebalance.keep_alive(group, member)
        return REBALANCE_IN_PROGRESS if group.is_in(ClassicState.PREPARING) else NONE

    # LeaveGroup

    def leave(self, group_id: str, leaving: list[LeavingMember]) -> list[Fields]:
        """The answer for each member that leaves, or that is removed by its instance id."""
        group = self._known(group_id)
        answers: list[Fields] = []
        for each in leaving:
            error_code = self._leave_one(group, each)
            answers.append(
                {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": error_code}
            )
        left = [answer["member_id"] for answer in answers if answer["error_code"] == NONE]
        if left:
            if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING):
                self.rebalance.begin_or_go_on(group, f"{', '.join(left)} left")
            elif group.is_in(ClassicState.PREPARING):
                self.rebalance.go_on(group)
        return answers

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            known = None if leaving.instance_id is None else group.static_members.get(leaving.instance_id)
            if known is None:
                return UNKNOWN_MEMBER_ID
            member_id = known
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, leaving.instance_id)
            except GroupRefusal as refusal:
                return refusal.error_code
        logger.debug("group %s: %s leaves (%s)", group.group_id, member_id, _reason(leaving.reason))
        group.remove(member_id)
        return NONE

    def _known(self, group_id: str) -> ClassicGroup:
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        return group


def _new_member_id(prefix: str) -> str:
    member_id = f"{prefix}-{uuid.uuid4()}"
    if len(member_id.encode()) > _LONGEST_ID:
        # Neither a record nor an older answer could hold it, and the leader could not get its members any more.
        raise GroupRefusal(UNKNOWN_SERVER_ERROR)
    return member_id


def _reason(given: str | None) -> str:
    return given or "no reason given"
