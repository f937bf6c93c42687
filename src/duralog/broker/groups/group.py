"""The interface of all kinds of groups: classic, consumer, and those that are not served.

A group knows its members. Its committed offsets are kept apart from it, in the `OffsetTable`: they stay when a group
changes its kind. All groups live on the loop's thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar
from uuid import UUID

from duralog.format.internal.coordinator_records import CoordinatorRecord

PartitionCheck = Callable[[str, UUID, int], None]
"""Called with the topic's name and id and the partition; raises `GroupRefusal` if it may not be committed."""


class Group(ABC):
    """One group of consumers."""

    kind: ClassVar[str]
    """As in ListGroups: `classic`, `consumer`, `share` or `streams`."""
    may_expire: ClassVar[bool] = True
    """Whether it is removed when it is empty and has no offsets."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """Empty for a group that never had members."""

    @property
    @abstractmethod
    def state(self) -> str:
        """As Kafka names it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, and no client is about to become one."""

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> PartitionCheck | None:
        """Refuse an offset commit that this member may not make now. Returns a check for each partition, or None."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse an offset fetch."""

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Refuse that single offsets are deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """Refuse that the whole group is deleted."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets must stay."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of the group, in their order. Offsets have their own."""

    @abstractmethod
    def expiry_base(self, commit_timestamp_ms: int) -> int | None:
        """The start of the retention of an offset committed at that time; None if it must not expire now."""

    @abstractmethod
    def cancel_timers(self) -> None:
        """The group is gone."""


def misfit(group: Group, record: CoordinatorRecord) -> str:
    """What is wrong with a record of another kind of group."""
    return f"group {group.group_id} is a {group.kind} group, which has no {record.type_name} records"
