"""A classic group: its generation, its state and its checks.

Its members are in `membership`, and how it moves from state to state in `rebalance`.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                ^  |                     |                 |
                |  +-> Empty             |                 |
                +------------------------+-----------------+

What must always be true: all members have the group's protocol type and know a protocol in common.

A group without a protocol type never had members: it only has offsets, committed by consumers that assign
partitions themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from duralog.broker.groups.classic.members import AnswerTo, ClassicMember
from duralog.broker.groups.classic.membership import ClassicMembership
from duralog.broker.groups.classic.records import UNKNOWN_TIME, group_record
from duralog.broker.groups.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from duralog.broker.groups.group import Group
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.timers import Timer
from duralog.broker.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from duralog.broker.wire.request import Fields
from duralog.format.internal.coordinator_records import CoordinatorRecord


class ClassicState(enum.StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members have to join again; their requests wait until all have joined."""
    COMPLETING = "CompletingRebalance"
    """There is a new generation, and the members wait for the leader's assignments."""
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup(ClassicMembership, Group):
    kind: ClassVar[str] = "classic"

    def __init__(
        self,
        group_id: str,
        clock: Callable[[], int],
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        state_timestamp_ms: int | None = None,
    ) -> None:
        Group.__init__(self, group_id)
        ClassicMembership.__init__(self)
        self._clock = clock
        self._state = state
        self.previous_state = ClassicState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        """Since when it is in its state; None if it was loaded from a record too old to have that."""
        self.generation = generation
        self._protocol_type = protocol_type
        self.protocol_name: str | None = None
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent their SyncGroup."""
        self.has_new_member = False
        """A member joined during the delay of the first rebalance, which extends the delay."""
        self.subscribed: frozenset[str] | None = None
        """The topics that the members read; None if that is unknown."""
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    # State

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
        """Whether it only has offsets."""
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

    # Members

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols may join."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self._protocol_type == protocol_type and self.knows_any(names)

    def add(self, member: ClassicMember, protocol_type: str, answer: AnswerTo | None = None) -> None:
        """Add a member. REQUIRES: `supports`; its instance id is new."""
        if not self.members:
            self._protocol_type = protocol_type
        self.admit(member, answer)

    def remove(self, member_id: str) -> None:
        super().remove(member_id)
        self.pending_syncs.discard(member_id)

    # Generations

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
        """All members, for the leader that assigns the partitions."""
        assert self.protocol_name is not None
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata(self.protocol_name),
            }
            for member in self.members.values()
        ]

    # Checks

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
        return [group_record(self.group_id, None)]

    def record(self, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as it is, but with these assignments, or with those that the members have."""
        name = self.protocol_name
        members = []
        for member in self.members.values():
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
        timestamp_ms = UNKNOWN_TIME if self.state_timestamp_ms is None else self.state_timestamp_ms
        value = {
            "protocol_type": self.protocol_type,
            "generation": self.generation,
            "protocol": name,
            "leader": self.leader_id,
            "current_state_timestamp": timestamp_ms,
            "members": members,
        }
        return group_record(self.group_id, value)

    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        if self._protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed is not None and self.is_in(ClassicState.STABLE):
            return commit_timestamp_ms
        return None

    def cancel_timers(self) -> None:
        self._state = ClassicState.DEAD
        for timer in (self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.cancel_member_timers()


def load_group(group_id: str, value: Mapping[str, Any], clock: Callable[[], int]) -> ClassicGroup:
    """A group from the fields of its record. REQUIRES: they can be loaded (`format.internal.loadable_records`).

    A group with members was stable when it was written: what a rebalance changes is written when it is over. Of a
    member's protocols, the record has only the one that the group used.
    """
    since_ms = value.get("current_state_timestamp", -1)
    group = ClassicGroup(
        group_id,
        clock,
        state=ClassicState.STABLE if value["members"] else ClassicState.EMPTY,
        generation=value["generation"],
        protocol_type=value["protocol_type"] or None,
        state_timestamp_ms=None if since_ms == -1 else since_ms,
    )
    group.protocol_name = value["protocol"]
    group.leader_id = value["leader"] if value["members"] else None
    for fields in value["members"]:
        rebalance_timeout_ms = fields.get("rebalance_timeout", -1)
        session_timeout_ms = fields["session_timeout"]
        member = ClassicMember(
            fields["member_id"],
            instance_id=fields.get("group_instance_id"),
            client_id=fields["client_id"],
            client_host=fields["client_host"],
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=[(value["protocol"] or "", fields["subscription"])],
            assignment=fields["assignment"],
        )
        group.add(member, value["protocol_type"])
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)
    group.learn_subscriptions()
    return group
