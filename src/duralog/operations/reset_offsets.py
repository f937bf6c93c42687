"""Reset the committed offsets of a consumer group, of a directory or of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from duralog.client.groups import ResetTo


class ResettableGroups(Protocol):
    """The groups of a directory, or of a broker (`duralog.client.groups`)."""

    def targets(self, topic: str, partition: int | None, to: ResetTo) -> Mapping[tuple[str, int], int]:
        """The offsets to set, within the range of each partition."""

    def committed(self, name: str) -> Mapping[tuple[str, int], int]:
        """What the group has committed. Refused if the group may not be changed."""

    def set_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    group: str
    topic: str
    partition: int | None
    """None for all partitions."""
    to: ResetTo
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffset:
    topic: str
    partition: int
    before: int | None
    """None if the group had committed none."""
    after: int


def reset_offsets(groups: ResettableGroups, request: ResetRequest) -> list[ResetOffset]:
    """By partition. The group may not have members, and a dry run changes nothing."""
    targets = groups.targets(request.topic, request.partition, request.to)
    committed = groups.committed(request.group)
    if not request.dry_run:
        groups.set_offsets(request.group, targets)
    return [
        ResetOffset(topic=topic, partition=partition, before=committed.get((topic, partition)), after=offset)
        for (topic, partition), offset in sorted(targets.items())
    ]
