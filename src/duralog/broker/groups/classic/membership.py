"""The members of a classic group, its leader, their protocols, their waiting requests, and expected members.

What must always be true: the leader is a member, and there is one exactly when there are members; every instance id has
one member; `awaiting_joins` counts the members whose JoinGroup waits; a member that leaves has got answers to its
waiting requests.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from duralog.broker.groups.classic.members import AnswerTo, ClassicMember, Protocols
from duralog.broker.groups.classic.protocol_votes import ProtocolCounts, elect
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.timers import Timer
from duralog.broker.wire.error_codes import FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from duralog.broker.wire.request import Fields
from duralog.errors import CorruptRecord

NO_MEMBER: Final = ""
"""The member id of one that has none yet."""


class ClassicMembership:
    def __init__(self) -> None:
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance ids."""
        self.pending_members: dict[str, Timer] = {}
        """Ids that were given to clients that have not joined with them yet; the timers forget them."""
        self.awaiting_joins = 0
        self._protocols = ProtocolCounts()

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def knows_any(self, names: Collection[str]) -> bool:
        """Whether all members know one of these protocols."""
        return self._protocols.is_any_known_by(len(self.members), names)

    # Joining and leaving

    def admit(self, member: ClassicMember, answer: AnswerTo | None) -> None:
        """Add a member. REQUIRES: its instance id is new."""
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._protocols.add(member.protocol_names)
        member.awaiting_join = answer
        if answer is not None:
            self.awaiting_joins += 1
        self.forget_pending(member.member_id)

    def add_pending(self, member_id: str, timer: Timer) -> None:
        self.pending_members[member_id] = timer

    def forget_pending(self, member_id: str) -> bool:
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending one. If it led, another one does. Its waiting requests are answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.cancel_timer()
            self._protocols.remove(member.protocol_names)
            self.answer_join(member, {"error_code": UNKNOWN_MEMBER_ID, "member_id": NO_MEMBER})
            self.answer_sync(member, {"error_code": UNKNOWN_MEMBER_ID, "assignment": b""})
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """A static member is back and has a new id. A client that still uses the old one is fenced."""
        old = self.members.pop(self.static_members[instance_id])
        old.cancel_timer()
        self.answer_join(old, {"error_code": FENCED_INSTANCE_ID, "member_id": old.member_id})
        self.answer_sync(old, {"error_code": FENCED_INSTANCE_ID, "assignment": b""})
        new = ClassicMember(
            new_member_id,
            instance_id=instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_member_id] = new
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        return new

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        answer: AnswerTo | None,
    ) -> None:
        """A member has joined again, perhaps with something new. Without an `answer` it does not wait for one."""
        self._protocols.remove(member.protocol_names)
        member.protocols = protocols
        self._protocols.add(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if member.awaiting_join is not None:
            # It has sent the request again, on another connection: the first one must not wait forever.
            self.answer_join(member, {"error_code": REBALANCE_IN_PROGRESS, "member_id": member.member_id})
        if answer is not None:
            member.awaiting_join = answer
            self.awaiting_joins += 1

    def answer_join(self, member: ClassicMember, fields: Fields) -> None:
        """Answer its JoinGroup if it waits."""
        if member.awaiting_join is not None:
            answer, member.awaiting_join = member.awaiting_join, None
            self.awaiting_joins -= 1
            answer(fields)

    def answer_sync(self, member: ClassicMember, fields: Fields) -> bool:
        """Answer its SyncGroup if it waits. Returns whether it did."""
        if member.awaiting_sync is None:
            return False
        answer, member.awaiting_sync = member.awaiting_sync, None
        answer(fields)
        return True

    @property
    def has_everybody_joined(self) -> bool:
        return len(self.members) == self.awaiting_joins and not self.pending_members

    def elect_leader(self) -> bool:
        """Choose a leader among those that have joined. Returns whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.is_awaiting_join), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def choose_protocol(self) -> str:
        """Raises CorruptRecord if the members have none in common, as only a damaged record can have."""
        candidates = self._protocols.known_by(len(self.members))
        if not candidates:
            raise CorruptRecord("the members of the group have no protocol in common")
        return elect((member.protocol_names for member in self.members.values()), candidates)

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member; refused if there is none of the id, or if another has taken over its instance id."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise GroupRefusal(UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise GroupRefusal(FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        return member

    def dismiss(self, error_code: int) -> None:
        """Answer all waiting requests with an error."""
        for member in self.members.values():
            self.answer_join(member, {"error_code": error_code, "member_id": member.member_id})
            self.answer_sync(member, {"error_code": error_code, "assignment": b""})

    def cancel_member_timers(self) -> None:
        for timer in self.pending_members.values():
            timer.cancel()
        for member in self.members.values():
            member.cancel_timer()
