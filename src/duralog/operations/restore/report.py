"""What is asked of a restore, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duralog.format.topic_partition import TopicPartition
from duralog.operations.restore.access import Access
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.cluster.sources import HealedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    paths: Sequence[str]
    """Of log directories: paths, URLs, globs and manifests."""
    target: str
    """The new directory. It must not exist, or be empty."""
    topics: Sequence[str] = ()
    """Names and patterns such as `pay*`; without any, all topics but Kafka's own."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    to_end: bool = False
    """Also records above the high watermark, which consumers were not served."""
    accept_loss: bool = False
    """Leave out offsets that no copy has, and make the directory nevertheless."""
    with_access: bool = False
    """Also the SCRAM users, ACLs and quotas of the old cluster."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """What proves that two logs hold the same records. Control batches count as batches, not as records."""

    records: int = 0
    first_offset: int | None = None
    """Of the first record; None without any."""
    last_offset: int | None = None
    digest: str = ""
    """`duralog.columnar.record_digest`."""
    batches: int = 0
    size_bytes: int = 0
    undecodable: int = 0
    """Batches with the right checksum whose records cannot be decoded. They are copied, and not in the digest."""

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets that consumers were served, and that no copy has without damage."""

    first_offset: int | None
    """None for a partition of which nothing is known."""
    last_offset: int | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {"first_offset": self.first_offset, "last_offset": self.last_offset, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A transaction that was open where the log is cut, and the marker that ends it in the new one."""

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    partition: TopicPartition
    source: str | None
    """The directory of the copy that counts; None if no copy can be read."""
    start_offset: int
    end_offset: int
    """Of the source, before `transactions`."""
    planned_bytes: int = 0
    contents: LogContents | None = None
    """Of the source as it was read, and of the new log as it is on disk: they are equal. None if nothing was copied."""
    healed: tuple[HealedRange, ...] = ()
    """What comes from other copies."""
    lost: tuple[LostRange, ...] = ()
    transactions: tuple[EndedTransaction, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "source": self.source,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "planned_bytes": self.planned_bytes,
            **({} if self.contents is None else self.contents.to_dict()),
            "is_proven": self.contents is not None,
            "healed": [each.to_dict() for each in self.healed],
            "lost": [each.to_dict() for each in self.lost],
            "transactions": [each.to_dict() for each in self.transactions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    name: str
    topic_id: str | None
    partitions: int
    configs: Mapping[str, str]
    """Those that are set for the topic."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "topic",
            "topic": self.name,
            "topic_id": self.topic_id,
            "partitions": self.partitions,
            "configs": dict(self.configs),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredGroup:
    name: str
    offsets: Mapping[TopicPartition, int]
    """The committed offsets of restored partitions."""

    def to_dict(self) -> dict[str, Any]:
        offsets = [
            {"topic": each.topic, "partition": each.partition, "offset": offset}
            for each, offset in sorted(self.offsets.items())
        ]
        return {"kind": "group", "group": self.name, "offsets": offsets}


@dataclass(frozen=True, slots=True)
class Note:
    """What an operator should know before the directory is used."""

    place: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "note", "place": self.place, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    target: str
    dry_run: bool
    is_made: bool
    """The new directory is complete, proven and on disk."""
    directories: int
    topics: tuple[RestoredTopic, ...]
    partitions: tuple[RestoredPartition, ...]
    groups: tuple[RestoredGroup, ...]
    notes: tuple[Note, ...]
    problems: tuple[Problem, ...]
    """Of the directories that it was read from."""
    seconds: float
    access: Access | None = None
    """The users, ACLs and quotas that are restored; None if that was not asked for."""

    @property
    def lost(self) -> list[tuple[TopicPartition, LostRange]]:
        return [(found.partition, each) for found in self.partitions for each in found.lost]

    @property
    def size_bytes(self) -> int:
        return sum(
            found.planned_bytes if found.contents is None else found.contents.size_bytes for found in self.partitions
        )

    @property
    def records(self) -> int:
        return sum(0 if found.contents is None else found.contents.records for found in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "summary",
            "target": self.target,
            "dry_run": self.dry_run,
            "is_made": self.is_made,
            "directories": self.directories,
            "topics": len(self.topics),
            "partitions": len(self.partitions),
            "groups": len(self.groups),
            **({} if self.access is None else self.access.to_dict()),
            "records": self.records,
            "bytes": self.size_bytes,
            "lost": len(self.lost),
            "seconds": round(self.seconds, 3),
        }
