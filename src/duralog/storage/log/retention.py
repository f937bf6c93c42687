"""Which old segments a log may lose, and why. Nothing here touches a file.

A policy is a small class with one method, which names the segments that may go. `plan` makes a decision of that:

- Segments go from the oldest on. The first one that a policy does not name keeps all that follow it.
- Nothing at or above the high watermark goes, and never an active segment that is empty.
- The active segment may go: whoever carries out the plan starts a new one first.
- Policies are asked in their order; each sees the log without what the ones before it have taken.

The three built-in policies are Kafka's, in Kafka's order. One thing differs: with the built-in default of
`retention.ms`, `BeyondAge` skips the segments that `AgingLog.held` covers (`duralog.storage.held_records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from duralog.config import Origin, TopicConfig

DELETE = "delete"
COMPACT = "compact"
DEFAULT_RETENTION_MS = TopicConfig().retention_ms


def is_retention_chosen(config: TopicConfig) -> bool:
    """Whether somebody chose `retention.ms`: for the topic, for the broker, or when the directory was opened."""
    return config.source("retention.ms").origin is not Origin.DEFAULT or config.retention_ms != DEFAULT_RETENTION_MS


class AgingSegment(Protocol):
    """What a policy can know of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file."""

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of a record; where records have none, the time of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgingLog:
    """What a policy can know of a log."""

    topic: str
    partition: int
    segments: Sequence[AgingSegment]
    """Oldest first. The last one is active: it is the one that is written to."""
    start_offset: int
    end_offset: int
    high_watermark: int
    config: TopicConfig
    now_ms: int
    held: Sequence[range] = ()
    """Offsets of records that the built-in default of `retention.ms` must not delete."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def end_offset_of(self, index: int) -> int:
        """The offset after the segment's last one, as the next segment tells it."""
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
    """A segment that a policy says may go."""

    segment: AgingSegment
    reason: str
    expiry: Expiry | None = None
    """The figures of the reason, if it is the age."""


class RetentionPolicy(Protocol):
    """Names segments that may go. It need not care for their order, nor for what must stay in any case."""

    def removable(self, log: AgingLog) -> Iterable[Removable]: ...


class BelowLogStart:
    """Segments that the log's start offset has left behind, as after `delete_records`. For all topics."""

    def removable(self, log: AgingLog) -> Iterator[Removable]:
        for index, segment in enumerate(log.segments[:-1]):
            if log.end_offset_of(index) <= log.start_offset:
                yield Removable(segment, f"it ends at offset {log.end_offset_of(index)}, the log starts behind it")


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
    """A segment that goes, or went."""

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
    """Partitions that could not be looked after, and why. Their segments stay."""

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)

    def _repr_html_(self) -> str:
        from duralog.notebook.notebook_tables import retention_html

        return retention_html(self)


def plan(log: AgingLog, policies: Iterable[RetentionPolicy] = BUILT_IN_POLICIES) -> list[Removal]:
    """The segments of one log that go, oldest first: always a beginning of `log.segments`."""
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
