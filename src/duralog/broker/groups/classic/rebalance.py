"""The rebalances of a classic group, and the timers that bound them.

1. A member joins, leaves or falls silent: the group prepares. Members learn with their next heartbeat that they have to
   join again. A group that was empty waits `group.initial.rebalance.delay.ms` for more members, repeatedly while more
   come.
2. All have joined, or the longest rebalance timeout is over: those that have not are removed, and a generation begins.
   The leader gets the list of members.
3. The leader sends the assignments. They are written to the log, and only then sent to members. A member that does not
   ask for its assignment within the rebalance timeout is removed.

Events that clients can cause repeatedly are logged at debug level only, so that they cannot fill the disk.

The group's record is written in two places: before assignments are sent, and when the last member has left. If the
second write fails, the group is still empty: after a crash its last members are back and time out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.classic.members import NO_ASSIGNMENT, ClassicMember
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import logger
from duralog.broker.wire.error_codes import NONE, REBALANCE_IN_PROGRESS
from duralog.broker.wire.request import Fields


class ClassicRebalance:
    """The rebalances of all classic groups."""

    def __init__(self, groups: LoggedGroups) -> None:
        self._groups = groups
        self._runtime = groups.runtime

    # Joining

    def begin_or_go_on(self, group: ClassicGroup, reason: str) -> None:
        """The members have changed: begin a rebalance, or complete the current one if all have joined."""
        if group.is_in(ClassicState.EMPTY, ClassicState.COMPLETING, ClassicState.STABLE):
            self.begin(group, reason)
        else:
            self.go_on(group)

    def begin(self, group: ClassicGroup, reason: str) -> None:
        if group.is_in(ClassicState.COMPLETING):
            self.fail_assignment(group, REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs(group)
        is_first = group.is_empty
        group.move_to(ClassicState.PREPARING)
        logger.debug("group %s rebalances after generation %d: %s", group.group_id, group.generation, reason)
        if is_first:
            delay_ms = self._runtime.config.group_initial_rebalance_delay_ms
            self._put_off(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_everybody_joined:
            self.complete(group)
        else:
            self._complete_later(group)

    def go_on(self, group: ClassicGroup) -> None:
        """Complete the rebalance if all have joined, unless it is the first one, which has its own delay."""
        is_first = group.previous_state is ClassicState.EMPTY
        if group.is_in(ClassicState.PREPARING) and not is_first and group.has_everybody_joined:
            self.complete(group)

    def complete(self, group: ClassicGroup) -> None:
        """Begin the generation of those that have joined. Static members may be late: they stay members."""
        self._set_join_timer(group)
        late = [member for member in group.members.values() if not member.is_awaiting_join and not member.is_static]
        for member in late:
            group.remove(member.member_id)
        if late:
            names = ", ".join(member.member_id for member in late)
            logger.debug("group %s continues without %s, which did not join again", group.group_id, names)
        if not group.elect_leader() and group.members:
            self._complete_later(group)
            return
        group.begin_generation()
        if group.is_empty:
            self._write_empty(group)
            return
        logger.debug(
            "group %s is in generation %d with %d members", group.group_id, group.generation, len(group.members)
        )
        for member in group.members.values():
            group.answer_join(member, self.joined(group, member, with_members=member.member_id == group.leader_id))
            self.keep_alive(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        expire = partial(self._expire_syncs, group, group.generation)
        group.sync_timer = self._runtime.timers.after(group.rebalance_timeout_ms, expire)

    def joined(
        self, group: ClassicGroup, member: ClassicMember, *, with_members: bool, skip_assignment: bool = False
    ) -> Fields:
        """The answer to a JoinGroup that has succeeded."""
        return {
            "error_code": NONE,
            "generation_id": group.generation,
            "protocol_type": group.protocol_type or None,
            "protocol_name": group.protocol_name,
            "leader": group.leader_id,
            "skip_assignment": skip_assignment,
            "member_id": member.member_id,
            "members": group.joined_members() if with_members else [],
        }

    def _put_off(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def is_over() -> None:
            if not group.has_new_member or not remaining_ms:
                self.complete(group)
                return
            group.has_new_member = False
            next_delay_ms = min(self._runtime.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._put_off(group, next_delay_ms, max(remaining_ms - delay_ms, 0))

        self._set_join_timer(group)
        group.join_timer = self._runtime.timers.after(delay_ms, is_over)

    def _complete_later(self, group: ClassicGroup) -> None:
        self._set_join_timer(group)
        group.join_timer = self._runtime.timers.after(group.rebalance_timeout_ms, partial(self.complete, group))

    def _set_join_timer(self, group: ClassicGroup) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None

    def _write_empty(self, group: ClassicGroup) -> None:
        logger.debug("group %s is empty after generation %d", group.group_id, group.generation)
        try:
            self._groups.append(group.group_id, [group.record()], replay=False)
        except GroupRefusal as refusal:
            reason = f"group {group.group_id} is empty, but its record could not be written: {refusal}"
            self._runtime.log_lines.warn("empty group", reason)

    # Assigning

    def assign(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """The leader has sent the assignments; a member without one gets nothing. REQUIRES: the group is completing."""
        complete = {member_id: assignments.get(member_id, NO_ASSIGNMENT) for member_id in group.members}
        try:
            self._groups.append(group.group_id, [group.record(complete)], replay=False)
        except GroupRefusal as refusal:
            self.fail_assignment(group, refusal.error_code)
            self.begin_or_go_on(group, f"its assignment could not be written: {refusal}")
            return
        for member in group.members.values():
            member.assignment = complete[member.member_id]
        self._hand_out(group, NONE)
        group.move_to(ClassicState.STABLE)

    def fail_assignment(self, group: ClassicGroup, error_code: int) -> None:
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        self._hand_out(group, error_code)

    def synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        """A member of this generation has asked for its assignment."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._stop_waiting_for_syncs(group)

    def assignment_of(self, group: ClassicGroup, member: ClassicMember) -> Fields:
        """The answer to a SyncGroup that has succeeded."""
        return {
            "error_code": NONE,
            "protocol_type": group.protocol_type or None,
            "protocol_name": group.protocol_name,
            "assignment": member.assignment,
        }

    def _hand_out(self, group: ClassicGroup, error_code: int) -> None:
        for member in list(group.members.values()):
            answer = (
                {"error_code": error_code, "assignment": NO_ASSIGNMENT}
                if error_code
                else self.assignment_of(group, member)
            )
            if group.answer_sync(member, answer):
                # While it waited, it could not send heartbeats. Now its session continues.
                self.keep_alive(group, member)

    def _stop_waiting_for_syncs(self, group: ClassicGroup) -> None:
        group.pending_syncs.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _expire_syncs(self, group: ClassicGroup, generation: int) -> None:
        if generation != group.generation or not group.is_in(ClassicState.COMPLETING, ClassicState.STABLE):
            return
        late = sorted(group.pending_syncs)
        for member_id in late:
            group.remove(member_id)
        if late:
            self.begin(group, f"{', '.join(late)} did not ask for an assignment")

    # Sessions

    def keep_alive(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None) -> None:
        """A sign of life: the session of the member starts again.

        The timer stays as it is if it is due before the new end, and then checks how much time is left: so a heartbeat
        costs no more than setting a number.
        """
        timers = self._runtime.timers
        left_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.expires_ms = timers.clock_ms() + left_ms
        timer = member.timer
        if timer is None or not timer.is_active or timer.due_ms > member.expires_ms:
            member.cancel_timer()
            member.timer = timers.after(left_ms, partial(self._session_is_over, group, member))

    def forget_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        """A client that got a member id did not join with it in time."""
        group.remove(member_id)
        if group.is_in(ClassicState.PREPARING) and group.has_everybody_joined:
            self.complete(group)

    def _session_is_over(self, group: ClassicGroup, member: ClassicMember) -> None:
        left_ms = member.expires_ms - self._runtime.timers.clock_ms()
        if left_ms > 0:
            member.timer = self._runtime.timers.after(left_ms, partial(self._session_is_over, group, member))
            return
        member.timer = None
        if member.may_be_silent or group.members.get(member.member_id) is not member:
            return
        group.remove(member.member_id)
        if group.is_in(ClassicState.STABLE, ClassicState.COMPLETING):
            self.begin_or_go_on(group, f"{member.member_id} was silent for too long")
        elif group.is_in(ClassicState.PREPARING) and group.has_everybody_joined:
            self.complete(group)

    def resume(self, group: ClassicGroup) -> None:
        """The group was loaded from the log. Its members have a whole session timeout to send a heartbeat."""
        for member in group.members.values():
            self.keep_alive(group, member)
        if len(group.members) > self._runtime.config.group_max_size:
            self.begin(group, "it has more members than it may have")
