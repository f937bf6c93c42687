"""What a heal would change in the copies of a partition: a value that can be shown, and sent to the process that heals.

A plan names ranges of log files. It holds as long as these do not change: the directories are locked from the planning
on. While one copy is healed, the files of the others may be replaced; their old contents must stay open until the
partition is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.format.checkpoints import EpochStart
from duralog.format.filenames import FolderState, PartitionFolder
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import uuid_bytes
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.locations import Location
from duralog.storage.repair.healed_log import Dropped, Truncation


@dataclass(frozen=True, slots=True)
class Part:
    """Whole batches, one after the other in a log file of a copy."""

    copy: int
    """Its number in the partition's plan."""
    segment: int
    """The base offset of its segment."""
    start: int
    end: int
    first_offset: int
    last_offset: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    base_offset: int
    parts: tuple[Part, ...]

    @property
    def end_offset(self) -> int:
        return self.parts[-1].last_offset + 1 if self.parts else self.base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Valid batches that only this copy has, and that are not part of the log."""

    first_offset: int
    last_offset: int
    batches: int
    high_watermark: int | None
    """Of the copy."""
    acknowledged: int
    """Those below it, and all if it is not known: a producer may count on them."""
    shared: int
    """Those that another copy has, too, in the leader epochs of the log: the chosen copy may be the wrong one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What is wrong with a copy, and what would be done about it."""

    location: Location
    node_id: int | None
    number: int | None
    """Of the copy in the partition's plan; None for a replica that has no folder."""
    findings: tuple[str, ...]
    """What is wrong."""
    replaced: tuple[tuple[PlannedSegment, ...], ...] = ()
    """New segments, those together that take the place of the same old ones."""
    dropped: tuple[Dropped, ...] = ()
    removed: tuple[int, ...] = ()
    truncated: Truncation | None = None
    first_changed: int = 0
    epochs: tuple[EpochStart, ...] = ()
    start_offset: int = 0
    end_offset: int = 0
    """Where the copy ends afterwards."""
    diverges_at: int | None = None
    """From here on, the copy had another history, by its leader epochs. None if it had the one of the log."""
    cleaned_to: int | None = None
    """Up to where a cleaner has been at what the copy has afterwards; None if that is not known."""
    orphans: Orphans | None = None
    conflicts: tuple[tuple[int, int], ...] = ()
    """Offsets of records that a cleaner has removed from a copy that would get them again: no copy is whole."""
    other_topic: str | None = None
    """The id of the topic that a folder of the partition's name belongs to. It is set aside."""

    @property
    def filled(self) -> list[Part]:
        """What comes from other copies; ranges of the same log file are joined."""
        found: list[Part] = []
        for group in self.replaced:
            for segment in group:
                found += [part for part in segment.parts if part.copy != self.number]
        return found

    @property
    def filled_bytes(self) -> int:
        return sum(part.size_bytes for part in self.filled)

    @property
    def quarantined_bytes(self) -> int:
        return sum(gone.end - gone.start for gone in self.dropped)

    @property
    def written_bytes(self) -> int:
        return sum(part.size_bytes for group in self.replaced for segment in group for part in segment.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    partition: TopicPartition
    topic_id: str | None
    sources: tuple[Location, ...]
    """The directories of the copies."""
    copies: tuple[CopyPlan, ...]
    """Those that are to be changed."""
    sound: int
    """Copies that stay as they are."""
    lost: tuple[tuple[int, int], ...]
    """Offsets that consumers were served and that no copy has."""
    high_watermark: int
    config: TopicConfig
    problems: tuple[Problem, ...] = ()
    """What a heal does not change: copies that cannot be read, or that belong to another topic."""


def set_aside_name(partition: TopicPartition, topic_id: str) -> str:
    """What a folder of another topic is renamed to: Kafka's name for folders that are not replicas of the node."""
    return PartitionFolder(*partition, FolderState.STRAY, uuid_bytes(topic_id).hex()).name
