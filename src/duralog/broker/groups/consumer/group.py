"""A consumer group of the newer protocol (KIP-848): members, their target assignments, and what they own.

The group's epoch goes up with every change that calls for a new target assignment. The target has the epoch that it was
made for, and each member the epoch that it has reached; a group is stable when all three agree. No partition has two
owners at a time.

It changes only by `update_member`, `remove_member` and the like, which `replay` calls for the records in the log: a
loaded group is the same as one that never stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from duralog.broker.groups.consumer.assignors import NO_PARTITIONS, Assignment
from duralog.broker.groups.consumer.member import ConsumerMember, Deadline
from duralog.broker.groups.consumer.records import (
    NO_TOPICS_HASH,
    ResolvedRegex,
    group_epoch_record,
    group_tombstones,
    member_tombstones,
    regex_tombstone,
)
from duralog.broker.groups.group import Group, PartitionCheck
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.timers import Timer
from duralog.broker.wire.error_codes import (
    ILLEGAL_GENERATION,
    NON_EMPTY_GROUP,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)
from duralog.format.internal.coordinator_records import CoordinatorRecord

FIRST_EPOCH: Final = 1
NO_TARGET_EPOCH: Final = -1
"""Of a group whose target was deleted, which is about to be deleted itself."""
_FIRST_COMMIT_VERSION_WITH_EPOCH: Final = 9


class ConsumerGroup(Group):
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = NO_TOPICS_HASH
        self.target_epoch = FIRST_EPOCH
        self.target_made_at_ms = 0
        """0 if that is not known."""
        self.targets: dict[str, Assignment] = {}
        """By member id."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Member ids by instance id."""
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata_record = False
        """A broker before 4.1 wrote one, which is to be deleted."""
        self.is_metadata_stale = True
        """Whether a topic may have changed since the metadata hash was made. This is not in the log."""
        self.timers: dict[str, dict[Deadline, Timer]] = {}
        """By member id."""
        self._owners: dict[tuple[UUID, int], str] = {}
        self._regex_subscribers: Counter[str] = Counter()
        self._topic_names: frozenset[str] | None = None

    # State

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def topic_names(self) -> frozenset[str]:
        """The topics that its members are subscribed to by name or by pattern, existing or not."""
        if self._topic_names is None:
            self._topic_names = subscribed_names(self.members.values(), self.resolved_regexes)
        return self._topic_names

    @property
    def regexes(self) -> set[str]:
        """The patterns that members are subscribed to."""
        return set(self._regex_subscribers)

    def regex_subscribers(self, regex: str) -> int:
        return self._regex_subscribers[regex]

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise GroupRefusal(UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> Assignment:
        """The target assignment of a member: for a static one that of its instance, under any member id."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return NO_PARTITIONS if member_id is None else self.targets.get(member_id, NO_PARTITIONS)

    def is_owned(self, topic: UUID, partition: int) -> bool:
        return (topic, partition) in self._owners

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_names

    # Checks

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> PartitionCheck | None:
        if epoch < 0 and not self.members:
            return None  # An admin client, or a consumer that assigns partitions to itself.
        if transactional and epoch == -1 and member_id == "" and instance_id is None:
            return None
        member = self.member(member_id)
        is_classic = member.classic is not None
        if not transactional and not is_classic and version < _FIRST_COMMIT_VERSION_WITH_EPOCH:
            raise GroupRefusal(
                UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.epoch:
            return None
        refused, what = (ILLEGAL_GENERATION, "generation id") if is_classic else (STALE_MEMBER_EPOCH, "member epoch")
        if epoch > member.epoch:
            raise GroupRefusal(refused, f"Received {what} {epoch} is newer than current member epoch {member.epoch}.")

        def check_partition(topic: str, topic_id: UUID | None, partition: int) -> None:
            given = None if topic_id is None else member.owns(topic_id, partition)
            if given is None:
                raise GroupRefusal(
                    refused, f"Partition {topic}-{partition} is not assigned or pending revocation for member."
                )
            if epoch < given:
                raise GroupRefusal(
                    refused,
                    f"Received {what} {epoch} is older than assignment epoch {given} for partition"
                    f" {topic}-{partition}.",
                )

        return check_partition

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch == member.epoch:
            return
        if member.classic is not None:
            raise GroupRefusal(
                ILLEGAL_GENERATION,
                f"The received generation id {epoch} does not match the expected member epoch {member.epoch}.",
            )
        raise GroupRefusal(
            STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )

    def check_offset_delete(self) -> None:
        """Offsets may always be deleted, of topics that no member is subscribed to."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise GroupRefusal(NON_EMPTY_GROUP)

    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, list(self.members), list(self.resolved_regexes))

    # Records to be written

    def departure_records(
        self, gone: Collection[str], left: Iterable[ConsumerMember], metadata_hash: int
    ) -> list[CoordinatorRecord]:
        """For members that leave and the patterns that only they had: a new epoch, with the hash of what is left."""
        records = [record for member_id in gone for record in member_tombstones(self.group_id, member_id)]
        unused = self.regexes - {member.topic_regex for member in left}
        records += [regex_tombstone(self.group_id, regex) for regex in sorted(unused)]
        records.append(group_epoch_record(self.group_id, self.epoch + 1, metadata_hash))
        return records

    # Changes, by records that are in the log

    def update_member(self, member: ConsumerMember) -> None:
        self._forget(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for partition in _partitions_of(member):
            self._owners[partition] = member.member_id
        if member.topic_regex:
            self._regex_subscribers[member.topic_regex] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._topic_names = None

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self._forget(member)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        self._topic_names = None

    def set_resolved_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """None for one without subscribers."""
        if resolved is None:
            self.resolved_regexes.pop(regex, None)
        else:
            self.resolved_regexes[regex] = resolved
        self._topic_names = None

    def _forget(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        for partition in _partitions_of(member):
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]
        if member.topic_regex:
            self._regex_subscribers[member.topic_regex] -= 1
            if not self._regex_subscribers[member.topic_regex]:
                del self._regex_subscribers[member.topic_regex]

    # Timers

    def cancel_timers(self) -> None:
        for member_id in [*self.timers]:
            self.cancel_timers_of(member_id)

    def cancel_timers_of(self, member_id: str) -> None:
        for timer in self.timers.pop(member_id, {}).values():
            timer.cancel()


def subscribed_names(members: Iterable[ConsumerMember], resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """All topics that any of these members is subscribed to. A pattern that is not looked up yet stands for none."""
    names: set[str] = set()
    for member in members:
        names |= names_of(member, resolved)
    return frozenset(names)


def names_of(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    found = resolved.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if found is None else member.topic_names | found.topics


def _partitions_of(member: ConsumerMember) -> Iterable[tuple[UUID, int]]:
    for partitions in (member.assigned, member.pending_revocation):
        for topic, numbers in partitions.items():
            for number in numbers:
                yield topic, number
