"""Resolves user input to partitions and offset ranges.

The words are those of Spark's Kafka connector: earliest and latest, offsets (-2 and -1 mean these two) and
timestamps. A timestamp means the first record at that time or later. Reading ends at the last stable offset for
`read_committed`, at the end of the log otherwise, as of the call.

An offset that the log does not have is data loss: it raises `OffsetOutOfRange` or, with `on_data_loss`, calls that and
uses the nearest existing offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from duralog.errors import InvalidConfig, OffsetOutOfRange, UnknownTopic
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.locations import LocatedStore, location_of
from duralog.scanning.remote_work import read_largest_timestamps, side_by_side
from duralog.scanning.slices import DataLoss
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.time_lookup import EARLIEST, LATEST
from duralog.storage.log.view import LogView
from duralog.storage.store import Store


class OffsetRange(NamedTuple):
    start_offset: int
    end_offset: int
    """One above the last offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Where to start or end, by offset; EARLIEST and LATEST are such."""

    everywhere: int | None = None
    of: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Of single partitions; takes precedence over `everywhere`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamps:
    """Where to start or end, by time."""

    everywhere_ms: int | None = None
    of: Mapping[TopicPartition, int] = field(default_factory=dict)
    if_none: str = "error"
    """For a start, if no record is that late: "error" or "latest". An end is then the end of the log."""


Bound = Offsets | Timestamps
OnDataLoss = Callable[[DataLoss], None]

FROM_EARLIEST = Offsets(everywhere=EARLIEST)
TO_LATEST = Offsets(everywhere=LATEST)


class TopicSource(Protocol):
    """What partitions are selected from: a store, or the directories of a cluster."""

    path: str

    def topics(self) -> list[str]: ...

    def partitions(self, topic: str) -> list[int]: ...


def select_partitions(
    store: TopicSource,
    *,
    topics: Iterable[str] | None = None,
    pattern: str | None = None,
    assigned: Mapping[str, Iterable[int]] | None = None,
    unless_named: Collection[str] = INTERNAL_TOPICS,
) -> list[TopicPartition]:
    """The partitions of these topics, of topics whose whole name matches the pattern, or the assigned ones; sorted.

    No pattern matches topics that must be named, such as Kafka's internal ones.
    """
    if (topics is not None) + (pattern is not None) + (assigned is not None) != 1:
        raise ValueError("one of topics, pattern and assigned")
    if assigned is not None:
        wanted = [TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers]
        for partition in wanted:
            if partition.partition not in _partitions(store, partition.topic):
                raise UnknownTopic(f"there is no partition {partition.partition} of {partition.topic} in {store.path}")
        return sorted(set(wanted))
    if pattern is not None:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidConfig(f"{pattern!r} is not a regular expression: {error}") from None
        topics = [topic for topic in store.topics() if compiled.fullmatch(topic) and topic not in unless_named]
    assert topics is not None
    return sorted({TopicPartition(topic, number) for topic in topics for number in _partitions(store, topic)})


def _partitions(store: TopicSource, topic: str) -> list[int]:
    try:
        return store.partitions(topic)
    except UnknownTopic:
        there = ", ".join(store.topics()[:20]) or "none"
        raise UnknownTopic(f"there is no topic {topic} in {store.path}; there are {there}") from None


def resolve(
    store: Store,
    partitions: Iterable[TopicPartition],
    start: Bound = FROM_EARLIEST,
    end: Bound = TO_LATEST,
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    on_data_loss: OnDataLoss | None = None,
) -> dict[TopicPartition, OffsetRange]:
    """The offsets to read of each partition. One that would start after its end is empty."""
    wanted = list(partitions)
    is_remote = location_of(store).is_remote
    if isinstance(store, LocatedStore):
        store.list_ahead(wanted)

    def bounded(partition: TopicPartition) -> BoundedLog:
        log = store.partition(*partition)
        if is_remote and (isinstance(start, Timestamps) or isinstance(end, Timestamps)):
            read_largest_timestamps(log.view.segments)
        return _BoundedView(log, isolation)

    return resolve_in(bounded, wanted, start, end, is_remote=is_remote, on_data_loss=on_data_loss)


class BoundedLog(Protocol):
    """Where the offsets of a log can be read, for readers of one isolation level."""

    @property
    def start_offset(self) -> int: ...

    @property
    def limit(self) -> int:
        """One above the last offset that they see."""

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset below the limit whose record has this time or a later one."""

    def let_go(self) -> None:
        """Close the files that were opened for lookups."""


class _BoundedView:
    def __init__(self, log: PartitionLog, isolation: Isolation) -> None:
        self._log = log
        self._isolation = isolation
        view = log.view
        self.start_offset = view.start_offset
        self.limit = view.limit(isolation)

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        found = self._log.offset_for_timestamp(timestamp_ms, isolation=self._isolation)
        return None if found is None else found.offset

    def let_go(self) -> None:
        self._log.view.segments.active.let_go()


def resolve_in(
    open_log: Callable[[TopicPartition], BoundedLog],
    partitions: Iterable[TopicPartition],
    start: Bound,
    end: Bound,
    *,
    is_remote: bool,
    on_data_loss: OnDataLoss | None,
) -> dict[TopicPartition, OffsetRange]:
    """As `resolve`, with logs that `open_log` finds."""
    wanted = list(partitions)
    _check_named(start, wanted, "start")
    _check_named(end, wanted, "end")

    def find_range(partition: TopicPartition) -> tuple[OffsetRange, list[DataLoss]]:
        log = open_log(partition)
        find = _Bounds(partition, log)
        first = find.offset(start, is_start=True)
        found = OffsetRange(first, max(first, find.offset(end, is_start=False)))
        log.let_go()
        return found, find.losses

    ranges: dict[TopicPartition, OffsetRange] = {}
    for partition, (found, losses) in zip(wanted, side_by_side(find_range, wanted, is_remote=is_remote), strict=True):
        for loss in losses:
            report_loss(loss, on_data_loss)
        ranges[partition] = found
    return ranges


class _Bounds:
    """Finds the bounds of one partition."""

    def __init__(self, partition: TopicPartition, log: BoundedLog) -> None:
        self._partition = partition
        self._log = log
        self._limit = log.limit
        self.losses: list[DataLoss] = []

    def offset(self, bound: Bound, *, is_start: bool) -> int:
        if isinstance(bound, Timestamps):
            return self._by_time(bound, is_start=is_start)
        offset = bound.of.get(self._partition, bound.everywhere)
        assert offset is not None
        if offset == EARLIEST:
            return self._log.start_offset
        if offset == LATEST:
            return self._limit
        if self._log.start_offset <= offset <= self._limit:
            return offset
        self.losses.append(data_loss(self._partition, OffsetRange(offset, offset), self._log, self._limit))
        return min(max(offset, self._log.start_offset), self._limit)

    def _by_time(self, bound: Timestamps, *, is_start: bool) -> int:
        timestamp_ms = bound.of.get(self._partition, bound.everywhere_ms)
        assert timestamp_ms is not None
        if timestamp_ms < 0:
            raise InvalidConfig(f"{self._partition}: {timestamp_ms} is not a timestamp: it is negative")
        found = self._log.offset_for_timestamp(timestamp_ms)
        if found is not None:
            return found
        if is_start and bound.if_none != "latest":
            raise OffsetOutOfRange(
                f"{self._partition}: no record has a timestamp of {timestamp_ms} or later;"
                " with startingOffsetsByTimestampStrategy=latest reading starts at the end then"
            )
        return self._limit


def data_loss(partition: TopicPartition, asked: OffsetRange, view: LogView | BoundedLog, limit: int) -> DataLoss:
    return DataLoss(
        topic=partition.topic,
        partition=partition.partition,
        asked_start=asked.start_offset,
        asked_end=asked.end_offset,
        available_start=view.start_offset,
        available_end=limit,
    )


def total_loss(partition: TopicPartition, asked: OffsetRange, reason: str) -> DataLoss:
    """None of the offsets is there."""
    return DataLoss(
        topic=partition.topic,
        partition=partition.partition,
        asked_start=asked.start_offset,
        asked_end=asked.end_offset,
        available_start=0,
        available_end=0,
        reason=reason,
    )


def report_loss(loss: DataLoss, on_data_loss: OnDataLoss | None) -> None:
    """Call `on_data_loss`; without it, raise `OffsetOutOfRange`."""
    if on_data_loss is None:
        raise loss.as_error()
    on_data_loss(loss)


def _check_named(bound: Bound, partitions: Iterable[TopicPartition], which: str) -> None:
    is_known_everywhere = (bound.everywhere if isinstance(bound, Offsets) else bound.everywhere_ms) is not None
    missing = [] if is_known_everywhere else [partition for partition in partitions if partition not in bound.of]
    if missing:
        raise InvalidConfig(f"the {which} is not given for {', '.join(map(str, missing[:20]))}")
