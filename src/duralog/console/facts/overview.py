"""The contents of the source at one refresh: topics, partitions, groups, and their history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duralog.client.groups import GroupView

RECENT_REFRESHES = 40


class SourceKind(StrEnum):
    DIRECTORY = "directory"
    BROKER = "broker"
    BOTH = "both"
    """Topics, segments and records from the directory, groups from the broker that serves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The whole source at one moment, for the charts of the overview."""

    at_ms: int
    size_bytes: int | None
    records_in_per_second: float | None
    """Since the sample before; None in the first one."""
    bytes_in_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    name: str
    partitions: int
    """Those in this directory, or those that the broker knows."""
    size_bytes: int | None
    """Of the log files; None if the broker does not report it."""
    records: int | None
    """End offsets less start offsets: a compacted log has fewer."""
    policy: str
    """`cleanup.policy` as Kafka writes it: `delete`, `compact`, `compact,delete`; empty if unknown."""
    is_internal: bool
    bytes_in_per_second: float | None
    """Growth of the log between the last two refreshes; what a compaction or retention took away counts 0."""
    records_in_per_second: float | None
    latest_timestamp_ms: int | None
    """The largest timestamp of a record, as far as it is known without reading logs."""
    trouble: str | None
    """A sentence about the first of its partitions that cannot be read."""
    recent: tuple[float | None, ...] = ()
    """Records in per second at the last refreshes, oldest first, `RECENT_REFRESHES` at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    name: str
    state: str | None
    """`Stable`, `Empty`, ...; None from a directory, since only a running broker knows."""
    protocol: str
    """`classic` or `consumer`."""
    members: int
    lag: int | None
    """Records not yet consumed, over all partitions with a committed offset, as Kafka's tool counts; None if none has
    one."""
    topics: tuple[str, ...]
    """That it committed offsets for or has members on, sorted."""
    without_commit: int = 0
    """Partitions of these topics that have records and no committed offset. Where the group would start there is not
    known: its consumers decide, by `auto.offset.reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    at_ms: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    facts: GroupFacts
    view: GroupView
    """Its members, and each partition's committed offset, end offset and lag, as `duralog group` shows them."""
    history: tuple[LagSample, ...]
    without_commit: tuple[PartitionRow, ...] = ()
    """The partitions of its topics that have no committed offset, also empty ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    taken_ms: int
    """When the snapshot was taken; 0 if none was yet."""
    target: str
    """The source's name for pages: a path, an address, or both."""
    kind: SourceKind
    cluster_id: str | None
    node_id: int | None
    held_by: str | None
    """The process that has the directory locked (`process 1234 (duralog)`); None if it is not locked, or there is no
    directory."""
    topics: tuple[TopicFacts, ...]
    """By name."""
    groups: tuple[GroupFacts, ...]
    """By name."""
    partitions: int
    size_bytes: int | None
    records: int | None
    bytes_in_per_second: float | None
    records_in_per_second: float | None
    history: tuple[Sample, ...]
    """Oldest first, bounded."""
    notes: tuple[str, ...]
    """Messages about what cannot be shown or read at the moment, and why."""
    is_online: bool = True
    """Whether the last refresh succeeded. If not, the rest is as it was last seen, and a note says why."""


def nothing_yet(target: str, kind: SourceKind, note: str, *, is_online: bool) -> Overview:
    """Before the first refresh."""
    return Overview(
        taken_ms=0,
        target=target,
        kind=kind,
        cluster_id=None,
        node_id=None,
        held_by=None,
        topics=(),
        groups=(),
        partitions=0,
        size_bytes=None,
        records=None,
        bytes_in_per_second=None,
        records_in_per_second=None,
        history=(),
        notes=(note,),
        is_online=is_online,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    topic: str
    partition: int
    size_bytes: int | None
    segments: int | None
    start_offset: int | None
    """None, like the other numbers, if the partition cannot be read: `trouble` says why."""
    end_offset: int | None
    dirty_ratio: float | None
    """Of a compacted log, as Kafka counts it, from sizes and the cleaner's checkpoint; `partition` is exact."""
    latest_timestamp_ms: int | None
    trouble: str | None
    records_in_per_second: float | None = None
    bytes_in_per_second: float | None = None
    leader: int | None = None
    """A broker's node id of the leader."""

    @property
    def records(self) -> int | None:
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset
