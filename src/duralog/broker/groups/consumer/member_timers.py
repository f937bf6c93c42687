"""The timers of a consumer group's members: one that is silent for too long, or keeps others waiting, is removed.

A timer checks the group as it is when it fires. If the member has left, or has done what was expected, nothing happens.
If it cannot be removed because the log cannot be written, the removal is tried again after the same time, but not
sooner than after a second, however short the client's timeout is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.consumer.member import ConsumerMember, Deadline
from duralog.broker.groups.group import Group
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import logger
from duralog.broker.runtime import Runtime

_RETRY_MS = 1_000


class MemberTimers:
    def __init__(
        self,
        runtime: Runtime,
        groups: Mapping[str, Group],
        remove: Callable[[ConsumerGroup, Sequence[ConsumerMember]], None],
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._remove = remove

    def start(self, group: ConsumerGroup, member: ConsumerMember, deadline: Deadline, timeout_ms: int) -> None:
        """From now on, instead of from when it was last started."""
        self.cancel(group, member.member_id, deadline)
        group_id, member_id, epoch = group.group_id, member.member_id, member.epoch

        def is_over() -> None:
            group = self._groups.get(group_id)
            member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
            if member is None or (deadline is Deadline.REVOCATION and member.epoch != epoch):
                return
            assert isinstance(group, ConsumerGroup)
            try:
                self._remove(group, [member])
            except GroupRefusal as refusal:
                reason = f"group {group_id}: member {member_id} could not be removed: {refusal}"
                self._runtime.log_lines.warn("member not removed", reason)
                self.start(group, member, deadline, max(timeout_ms, _RETRY_MS))
            else:
                logger.info("group %s: member %s is removed: %s", group_id, member_id, deadline.value)

        timer = self._runtime.timers.after(max(timeout_ms, 0), is_over)
        group.timers.setdefault(member_id, {})[deadline] = timer

    def start_if_absent(
        self, group: ConsumerGroup, member: ConsumerMember, deadline: Deadline, timeout_ms: int
    ) -> None:
        timer = group.timers.get(member.member_id, {}).get(deadline)
        if timer is None or not timer.is_active:
            self.start(group, member, deadline, timeout_ms)

    def cancel(self, group: ConsumerGroup, member_id: str, deadline: Deadline) -> None:
        timer = group.timers.get(member_id, {}).pop(deadline, None)
        if timer is not None:
            timer.cancel()
