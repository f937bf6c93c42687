"""A classic group: its members, its generation and its state. How it moves from state to state is `classic_rebalance`.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                ^  |                     |                 |
                |  +-> Empty             |                 |
                +------------------------+-----------------+

What must always be true: all members have the group's protocol type and know a protocol in common; the leader is a
member, and there is one exactly when there are members; `awaiting_joins` counts the members whose JoinGroup waits.

A group without a protocol type never had members: it only has offsets, committed by consumers that share out the
partitions themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import ClassVar, Final

from duralog.broker.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from duralog.broker.groups.classic_members import AnswerTo, ClassicMember, Protocols
from duralog.broker.groups.classic_records import group_tombstone
from duralog.broker.groups.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from duralog.broker.groups.group import Group
from duralog.broker.groups.protocol_votes import ProtocolCounts, elect
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.request import Fields
from duralog.broker.timers import Timer
from duralog.format.coordinator_records import CoordinatorRecord

NO_MEMBER: Final = ""
"""The member id of one that has none yet."""


class ClassicState(enum.StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are told to join again, and their requests wait until all have."""
    COMPLETING = "CompletingRebalance"
    """There is a new generation, and the members wait for what its leader assigns to them."""
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup(Group):
    kind: ClassVar[str] = "classic"

    def __init__(
        self,
        group_id: str,
        clock: Callable[[], int],
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        state_timestamp_ms: int | None = None,
    ) -> None:
        super().__init__(group_id)
        self._clock = clock
        self._state = state
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        """Since when it is in its state; None if the record it was loaded from is too old to tell."""
        self.generation = generation
        self._protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance ids."""
        self.pending_members: dict[str, Timer] = {}
        """Ids that were given to clients that have not joined with them yet; the timers forget them."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent their SyncGroup."""
        self.awaiting_joins = 0
        self.has_new_member = False
        """Somebody came while the first rebalance was put off, which puts it off further."""
        self.subscribed: frozenset[str] | None = None
        """The topics that the members read; None if that cannot be told."""
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self._protocols = ProtocolCounts()

    # What it is

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def protocol_type(self) -> str:
        return self._protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self._state is ClassicState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether it is only there for its offsets."""
        return self._protocol_type is None and self.is_empty and not self.pending_members

    @property
    def uses_consumer_protocol(self) -> bool:
        return self._protocol_type == PROTOCOL_TYPE

    def is_in(self, *states: ClassicState) -> bool:
        return self._state in states

    def move_to(self, state: ClassicState) -> None:
        self.previous_state = self._state
        self._state = state
        self.state_timestamp_ms = self._clock()

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the most patient member gives the others to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Who is in it

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether one who brings these protocols may join."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self._protocol_type == protocol_type and self._protocols.is_any_known_by(len(self.members), names)

    def add(self, member: ClassicMember, protocol_type: str, answer: AnswerTo | None = None) -> None:
        """Take a member in. REQUIRES: `supports`; its instance id is new."""
        if not self.members:
            self._protocol_type = protocol_type
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
        """Let a member go, or one who was to become one. Another leads if it led. Requests of it that wait are told."""
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
        self.pending_syncs.discard(member_id)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """A static member is back and has got a new id. Whoever still uses the old one is fenced."""
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
            # It has sent the request again, on another connection: the first one must not wait for ever.
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
        """Let somebody lead who has joined. Returns whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.is_awaiting_join), None)
        self.leader_id = joined or self.leader_id
        return joined is not None

    def choose_protocol(self) -> str:
        candidates = self._protocols.known_by(len(self.members))
        return elect((member.protocol_names for member in self.members.values()), candidates)

    def begin_generation(self) -> None:
        """With those who are members now: none, then the group is empty, or with a protocol that all know."""
        self.generation += 1
        self.protocol_name = self.choose_protocol() if self.members else None
        self.learn_subscriptions()
        self.move_to(ClassicState.COMPLETING if self.members else ClassicState.EMPTY)
        self.pending_syncs.clear()

    def learn_subscriptions(self) -> None:
        self.subscribed = None
        if not self.uses_consumer_protocol:
            return
        topics: set[str] = set()
        for member in self.members.values():
            if self.protocol_name is None:
                return
            of_member = subscribed_topics(member.metadata(self.protocol_name))
            if of_member is None:
                return
            topics |= of_member
        self.subscribed = frozenset(topics)

    def joined_members(self) -> list[Fields]:
        """All members, for the leader to share out the partitions."""
        assert self.protocol_name is not None
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata(self.protocol_name),
            }
            for member in self.members.values()
        ]

    # What may be done

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

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        del version
        if self.is_in(ClassicState.DEAD):
            raise GroupRefusal(COORDINATOR_NOT_AVAILABLE)
        if epoch < 0 and self.is_empty:
            return
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if epoch != self.generation:
                raise GroupRefusal(ILLEGAL_GENERATION)
        elif not transactional:
            raise GroupRefusal(UNKNOWN_MEMBER_ID)
        if not transactional and self.is_in(ClassicState.COMPLETING):
            raise GroupRefusal(REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        if not self.is_empty and not self.uses_consumer_protocol:
            raise GroupRefusal(NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.is_in(ClassicState.DEAD):
            raise GroupRefusal(GROUP_ID_NOT_FOUND)
        if not self.is_empty:
            raise GroupRefusal(NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]

    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        if self._protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed is not None and self.is_in(ClassicState.STABLE):
            return commit_timestamp_ms
        return None

    def dismiss(self, error_code: int) -> None:
        """Answer everybody who waits with an error."""
        for member in self.members.values():
            self.answer_join(member, {"error_code": error_code, "member_id": member.member_id})
            self.answer_sync(member, {"error_code": error_code, "assignment": b""})

    def cancel_timers(self) -> None:
        self._state = ClassicState.DEAD
        for timer in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            member.cancel_timer()
