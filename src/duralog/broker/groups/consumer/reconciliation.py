"""A member's next step on its way from what it owns to what the target gives it.

A partition is never owned by two members: one that must give up partitions stays in its epoch until it no longer
reports them, and one that is to get them waits until they have no owner. Each heartbeat takes one step. The result is
the member after the step, or the same object if there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.member import ConsumerMember, EpochedPartitions, MemberState
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import FENCED_MEMBER_EPOCH


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is meant to own."""

    epoch: int
    partitions: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """What is known when a member reports."""

    target: Target
    subscribed_topics: frozenset[UUID]
    """What the member is subscribed to now. The target may be older than the subscription."""
    subscription_changed: bool
    is_owned: Callable[[UUID, int], bool]
    """Whether any member of the group owns the partition."""
    reported: Assignment | None
    """What the member says that it owns; None if it said nothing."""

    def step(self, member: ConsumerMember) -> ConsumerMember:
        if member.state is MemberState.STABLE:
            if member.epoch != self.target.epoch:
                return self._move_to_target(member, member.epoch)
            return self._drop_unsubscribed(member) if self.subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._still_has(member.pending_revocation):
                return self._drop_unsubscribed(member) if self.subscription_changed else member
            return self._move_to_target(member, member.epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._move_to_target(member, member.epoch)
        if self.reported is None or self.reported:
            raise GroupRefusal(
                FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state."
                " The member must abandon all its partitions and rejoin.",
            )
        return self._move_to_target(member, self.target.epoch)

    def _move_to_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        kept: dict[UUID, dict[int, int]] = {}
        revoked: dict[UUID, dict[int, int]] = {}
        for topic, owned in member.assigned.items():
            target = self._target_of(topic)
            for partition, given in owned.items():
                (kept if partition in target else revoked).setdefault(topic, {})[partition] = given
        if revoked and self._still_has(revoked):
            return member.with_epoch(
                epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
            )
        waits = False
        for topic in self.target.partitions:
            for partition in sorted(self._target_of(topic)):
                if partition in kept.get(topic, {}):
                    continue
                # Partitions that it has just given up are free again, although the group does not know it yet.
                if self.is_owned(topic, partition) and partition not in member.pending_revocation.get(topic, {}):
                    waits = True
                else:
                    kept.setdefault(topic, {})[partition] = self.target.epoch
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return member.with_epoch(self.target.epoch, state=state, assigned=kept, pending_revocation={})

    def _drop_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke at once what the member is no longer subscribed to, although there is no new target yet."""
        kept = {topic: owned for topic, owned in member.assigned.items() if topic in self.subscribed_topics}
        if len(kept) == len(member.assigned):
            return member
        revoked = {topic: {**owned} for topic, owned in member.pending_revocation.items()}
        for topic, owned in member.assigned.items():
            if topic not in kept:
                revoked.setdefault(topic, {}).update(owned)
        if self._still_has(revoked):
            return member.with_epoch(
                member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
            )
        return replace(member, previous_epoch=member.epoch, assigned=kept)

    def _target_of(self, topic: UUID) -> frozenset[int]:
        if topic not in self.subscribed_topics:
            return frozenset()
        return self.target.partitions.get(topic, frozenset())

    def _still_has(self, partitions: EpochedPartitions) -> bool:
        """Whether the member may still own any of them. Until it has said what it owns, it may."""
        if self.reported is None:
            return True
        return any(not numbers.isdisjoint(partitions.get(topic, {})) for topic, numbers in self.reported.items())
