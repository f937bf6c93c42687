"""A change of a member of a consumer group: records, computed step by step and written as one batch.

The steps, in this order: apply the member's subscription, which may raise the group's epoch (`take_in_subscription`);
compute a target assignment for the epoch (`make_target`); take the member one step towards its target (`reconcile`);
write everything, which takes effect then (`write`). Until then the group is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from duralog.broker.groups.consumer.assignors import Assignment
from duralog.broker.groups.consumer.group import ConsumerGroup, names_of, subscribed_names
from duralog.broker.groups.consumer.member import ConsumerMember, Deadline, MemberState
from duralog.broker.groups.consumer.member_timers import MemberTimers
from duralog.broker.groups.consumer.reconciliation import Reconciliation, Target
from duralog.broker.groups.consumer.records import (
    current_assignment_record,
    group_epoch_record,
    member_tombstones,
    partition_metadata_tombstone,
    subscription_record,
    target_record,
)
from duralog.broker.groups.consumer.regex_refresh import RegexChange, RegexRefresh
from duralog.broker.groups.consumer.target_assignment import assign, preferred_assignor, target_records, topic_ids
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.format.internal.coordinator_records import CoordinatorRecord


class ChangeableGroups(Protocol):
    """What a change needs of all consumer groups."""

    groups: LoggedGroups
    regexes: RegexRefresh
    timers: MemberTimers

    def metadata_hash(self, names: Iterable[str]) -> int:
        """Of those of the topics that exist."""

    def setting(self, group_id: str, name: str) -> int:
        """The group's own config, or else that of the broker."""


class MemberChange:
    """A change in progress. `member` is the member as it will be."""

    def __init__(
        self,
        consumer_groups: ChangeableGroups,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        replaced: ConsumerMember | None,
        records: list[CoordinatorRecord],
    ) -> None:
        """`before` is as the group knows it, or as a new one starts; `records` are to be written first."""
        self.group = group
        self.before = before
        self.member = member
        self.replaced = replaced
        """The static member whose place it takes."""
        self.records = records
        self.epoch = group.epoch
        """Of the group, after the change."""
        self.target = Target(group.target_epoch, group.target_of(member))
        self.subscription_changed = False
        self._consumer_groups = consumer_groups
        self._groups = consumer_groups.groups
        self._topics = self._groups.topics
        self._runtime = self._groups.runtime
        self._regex = RegexChange()
        self._is_metadata_fresh = False
        if replaced is not None:
            self.records += [
                *member_tombstones(group.group_id, replaced.member_id),
                subscription_record(group.group_id, before),
                target_record(group.group_id, before.member_id, group.target_of(before)),
                current_assignment_record(group.group_id, before),
            ]

    def members(self) -> dict[str, ConsumerMember]:
        """Those of the group after the change."""
        members = {**self.group.members, self.member.member_id: self.member}
        if self.replaced is not None and self.replaced.member_id != self.member.member_id:
            del members[self.replaced.member_id]
        return members

    def _targets(self) -> Mapping[str, Assignment]:
        """Those of the group, with the member in the place of the one that it replaces."""
        return {**self.group.targets, self.member.member_id: self.group.target_of(self.member)}

    def take_in_subscription(self, now_ms: int, *, waits_for_patterns: bool = True) -> None:
        """Raise the group's epoch if its subscribed topics have changed.

        Not for a pattern that is not resolved yet: the epoch is raised when its topics are known.
        """
        group = self.group
        is_new = self.replaced is None and self.member.member_id not in group.members
        if is_new or self.member != self.before:
            self.records.append(subscription_record(group.group_id, self.member))
        names_changed = self.member.topic_names != self.before.topic_names
        self._regex = self._consumer_groups.regexes.change(group, self.before, self.member, now_ms)
        self.records += self._regex.records
        self.subscription_changed = names_changed or self._regex.is_changed
        regex_counts = self._regex.is_resolved if waits_for_patterns else self._regex.is_changed
        must_raise_epoch = names_changed or regex_counts
        if not must_raise_epoch and not group.is_metadata_stale:
            return
        self._is_metadata_fresh = True
        names = subscribed_names(self.members().values(), group.resolved_regexes)
        new_hash = self._consumer_groups.metadata_hash(names)
        if must_raise_epoch or new_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(group_epoch_record(group.group_id, self.epoch, new_hash))
        if group.has_partition_metadata_record:
            self.records.append(partition_metadata_tombstone(group.group_id))

    def make_target(self, now_ms: int) -> None:
        """A new assignment, if the group needs one and the last one is not too recent."""
        group = self.group
        interval_ms = self._consumer_groups.setting(group.group_id, "assignment.interval.ms")
        # A time in the future is not recent: the clock was set back, and no member should wait for it to catch up.
        is_recent = 0 <= now_ms - group.target_made_at_ms < interval_ms
        if group.target_epoch >= self.epoch or is_recent:
            return
        members = self.members()
        assignor = preferred_assignor(members.values(), self._runtime.config.group_consumer_assignors)
        assignments = assign(group, members, self._targets(), assignor, self._topics)
        self.records += target_records(group, assignments, self.epoch, now_ms)
        self.target = Target(self.epoch, assignments[self.member.member_id])

    def reconcile(self, reported: Assignment | None) -> None:
        """`reported` is what the member says that it owns; None if it said nothing."""
        group, member = self.group, self.member
        if not self.subscription_changed and member.is_reconciled_to(self.target.epoch):
            return
        reconciliation = Reconciliation(
            target=self.target,
            subscribed_topics=topic_ids(names_of(member, group.resolved_regexes), self._topics),
            subscription_changed=self.subscription_changed,
            is_owned=group.is_owned,
            reported=reported,
        )
        self.member = reconciliation.step(member)
        if self.member != member:
            self.records.append(current_assignment_record(group.group_id, self.member))

    def write(self) -> ConsumerGroup:
        """Write the change and apply it. Returns the group as it is now. Raises `GroupRefusal` if that fails."""
        if self.records:
            self._groups.append(self.group.group_id, self.records)
        group = self._groups.by_id[self.group.group_id]
        assert isinstance(group, ConsumerGroup)
        if self._is_metadata_fresh:
            group.is_metadata_stale = False
        if self.member.classic is None:
            self._watch_revocation(group)
        if self._regex.must_resolve:
            self._consumer_groups.regexes.resolve(group, self._runtime.clock())
        return group

    def _watch_revocation(self, group: ConsumerGroup) -> None:
        member, before = self.member, self.before
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumer_groups.timers.cancel(group, member.member_id, Deadline.REVOCATION)
        elif (member.epoch, member.pending_revocation) != (before.epoch, before.pending_revocation):
            self._consumer_groups.timers.start(group, member, Deadline.REVOCATION, member.rebalance_timeout_ms)
