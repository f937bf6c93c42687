"""Which old segments of a log are deleted, and why. No I/O.

A policy is a class with one method, which returns the segments that may be deleted. `plan` decides:

- Segments are deleted from the oldest on. The first one that a policy does not return keeps all after it.
- Nothing at or above the high watermark is deleted, nor an empty active segment.
- The active segment may be deleted: the log is rolled first.
- Policies run in order; each sees the log without the segments that the policies before it delete.

The three built-in policies are Kafka's, in Kafka's order, with one difference: with the built-in default of
`retention.ms`, `BeyondAge` skips the segments in `AgingLog.held` (`duralog.storage.held_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from duralog.config import Origin, TopicConfig
from duralog.notebook.notebook_tables import retention_html

DELETE = "delete"
COMPACT = "compact"
DEFAULT_RETENTION_MS = TopicConfig().retention_ms


def is_retention_chosen(config: TopicConfig) -> bool:
    """Whether `retention.ms` was set: for the topic, for the broker, or when the directory was opened."""
    return config.source("retention.ms").origin is not Origin.DEFAULT or config.retention_ms != DEFAULT_RETENTION_MS


class AgingSegment(Protocol):
    """A segment as policies see it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file."""

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of its records; the modification time of the file if they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgingLog:
    """A log as policies see it."""

    topic: str
    partition: int
    segments: Sequence[AgingSegment]
    """Oldest first. The last one is the active segment."""
    start_offset: int
    end_offset: int
    high_watermark: int
    config: TopicConfig
    now_ms: int
    held: Sequence[range] = ()
    """Offsets that the built-in default of `retention.ms` must not delete."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def end_offset_of(self, index: int) -> int:
        """The end offset of a segment: the base offset of the next one, or the end of the log."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end_offset

    def is_held(self, index: int) -> bool:
        """Whether the segment has records that are held."""
        base_offset, end_offset = self.segments[index].base_offset, self.end_offset_of(index)
        return any(base_offset < held.stop and held.start < end_offset for held in self.held)

    def without_first(self, count: int) -> AgingLog:
        if count == 0:
            return self
        start_offset = max(self.start_offset, self.end_offset_of(count - 1))
        return replace(self, segments=self.segments[count:], start_offset=start_offset)


class Expiry(NamedTuple):
    """Why `BeyondAge` removes a segment, in figures."""

    age_ms: int
    """Of the segment's newest record."""
    retention_ms: int


class Removable(NamedTuple):
    """A segment that a policy would delete."""

    segment: AgingSegment
    reason: str
    expiry: Expiry | None = None
    """The figures of the reason, if it is the age."""


class RetentionPolicy(Protocol):
    """Returns segments that may be deleted, in any order. `plan` keeps those that must stay."""

    def removable(self, log: AgingLog) -> Iterable[Removable]: ...


class BelowLogStart:
    """Segments below the log's start offset, as after `delete_records`. For all topics."""

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        for index, segment in enumerate(log.segments[:-1]):
            end_offset = log.end_offset_of(index)
            if end_offset <= log.start_offset:
                yield Removable(segment, f"it ends at offset {end_offset}, the log starts at {log.start_offset}")


class BeyondSize:
    """The oldest segments of a log that has at least `retention.bytes` without them."""

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        limit = log.config.retention_bytes
        if DELETE not in log.config.cleanup_policy or limit < 0:
            return
        size_bytes = log.size_bytes
        for segment in log.segments:
            size_bytes -= segment.size_bytes
            if size_bytes < limit:
                return
            yield Removable(segment, f"{size_bytes} bytes follow it, retention.bytes is {limit}")


class BeyondAge:
    """Segments whose newest record is older than `retention.ms`."""

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        limit = log.config.retention_ms
        if DELETE not in log.config.cleanup_policy or limit < 0:
            return
        may_be_held = bool(log.held) and not is_retention_chosen(log.config)
        for index, segment in enumerate(log.segments):
            age_ms = log.now_ms - segment.largest_timestamp_ms
            if age_ms > limit and not (may_be_held and log.is_held(index)):
                reason = f"its newest record is {age_ms} ms old, retention.ms is {limit}"
                yield Removable(segment, reason, Expiry(age_ms, limit))


BUILT_IN_POLICIES: tuple[RetentionPolicy, ...] = (BelowLogStart(), BeyondSize(), BeyondAge())


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A segment that is deleted."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    """The offset after its last one."""
    size_bytes: int
    policy: str
    """The name of the policy's class."""
    reason: str
    expiry: Expiry | None = None
    """The figures of the reason, if it is the age."""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "expiry"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    removals: Sequence[Removal] = ()
    """By topic and partition, oldest segments first."""
    failures: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Partitions that failed, and why. Their segments stay."""

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)

    def _repr_html_(self) -> str:
        return retention_html(self.removals, self.failures.items())


def plan(log: AgingLog, policies: Iterable[RetentionPolicy] = BUILT_IN_POLICIES) -> list[Removal]:
    """The segments of a log to delete, oldest first: always a prefix of `log.segments`."""
    removals: list[Removal] = []
    for policy in policies:
        chosen = _chosen_by(policy, log)
        removals += chosen
        log = log.without_first(len(chosen))
        if not log.segments:
            break
    return removals


def _chosen_by(policy: RetentionPolicy, log: AgingLog) -> list[Removal]:
    named = {removable.segment.base_offset: removable for removable in policy.removable(log)}
    chosen: list[Removal] = []
    for index, segment in enumerate(log.segments):
        end_offset = log.end_offset_of(index)
        is_active = index == len(log.segments) - 1
        must_stay = end_offset > log.high_watermark or (is_active and segment.size_bytes == 0)
        if must_stay or segment.base_offset not in named:
            break
        chosen.append(
            Removal(
                topic=log.topic,
                partition=log.partition,
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                policy=type(policy).__name__,
                reason=named[segment.base_offset].reason,
                expiry=named[segment.base_offset].expiry,
            )
        )
    return chosen
