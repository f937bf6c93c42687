"""The clocks of a consumer group's members: who is silent too long, or keeps the others waiting, is put out.

A timer looks at the group as it is when it goes off. If the member has left, or is past what it was waited for, nothing
happens; if it cannot be put out because the log cannot be written, it is tried again after the same time, but not
sooner than after a second, whatever time the client has given itself.
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
        put_out: Callable[[ConsumerGroup, Sequence[ConsumerMember]], None],
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._put_out = put_out

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
                self._put_out(group, [member])
            except GroupRefusal as refusal:
                reason = f"group {group_id}: member {member_id} could not be put out: {refusal}"
                self._runtime.log_lines.warn("member not put out", reason)
                self.start(group, member, deadline, max(timeout_ms, _RETRY_MS))
            else:
                logger.info("group %s: member %s is out: %s", group_id, member_id, deadline.value)

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
