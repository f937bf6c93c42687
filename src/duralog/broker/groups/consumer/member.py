"""A member of a consumer group: its subscription, what it owns, and the epoch that it has reached.

A member is a value: a change is a new member, and the group takes it in when the record of it is in the log. Its epoch
is the group's epoch that it has reached. Of its partitions, each remembers the epoch in which it was given, so that an
offset commit that was sent in an older epoch still counts if no other member can have owned the partition since.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from duralog.broker.groups.consumer.assignors import Assignment

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""A static member leaves and will be back under another member id: its partitions wait for it."""

EpochedPartitions = Mapping[UUID, Mapping[int, int]]
"""By topic and partition, the epoch in which the partition was given. There is no topic without partitions in it."""


class Deadline(enum.Enum):
    """The deadlines of a member."""

    SESSION = "its session expired"
    REVOCATION = "it did not give up partitions in time"
    JOIN = "it speaks the classic protocol and did not join again in time"
    SYNC = "it speaks the classic protocol and did not ask for its assignment in time"


class MemberState(enum.IntEnum):
    """Where a member is on its way to the target assignment. The numbers are those of the records."""

    STABLE = 0
    """It has reached its epoch, and owns all that the target gave it in that epoch."""
    UNREVOKED_PARTITIONS = 1
    """It was asked to give up partitions, and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 2
    """It has given up its partitions, and waits for others to give up its new ones."""
    UNKNOWN = 127
    """Written by a newer broker."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The data of a member that speaks the classic protocol within a consumer group."""

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]
    """Names of assignors with the member's subscription for each, the one it likes most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    """Empty or null for no subscription by pattern: both are kept and described as they are."""
    server_assignor: str | None = None
    assigned: EpochedPartitions = field(default_factory=dict)
    pending_revocation: EpochedPartitions = field(default_factory=dict)
    """To be revoked. It still owns them."""
    classic: ClassicMetadata | None = None
    """None for a member that speaks the newer protocol."""

    def with_epoch(self, epoch: int, **changes: Any) -> ConsumerMember:
        """The member in another epoch (or in the same one again), and otherwise changed."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def owns(self, topic: UUID, partition: int) -> int | None:
        """The epoch in which it got a partition that it owns, or still owns; None if it does not."""
        epoch = self.assigned.get(topic, {}).get(partition)
        return epoch if epoch is not None else self.pending_revocation.get(topic, {}).get(partition)


def without_epochs(partitions: EpochedPartitions) -> Assignment:
    return {topic: frozenset(numbers) for topic, numbers in partitions.items()}


def with_epochs(partitions: Assignment, epoch: int) -> EpochedPartitions:
    return {topic: dict.fromkeys(sorted(numbers), epoch) for topic, numbers in partitions.items()}
