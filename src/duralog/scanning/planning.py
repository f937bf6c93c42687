"""Plans which bytes to read for some ranges of offsets, from listings and indexes only: no record is read.

Segments and parts of them are pruned by offset and, if the caller gives a lower bound of time, by the time index. The
rest is cut at index entries into slices of about the same size, so that one large partition keeps every core busy;
small segments share tasks.

What must always be true: every offset of the ranges that may hold a wanted record belongs to exactly one slice, and a
slice's bytes hold all batches with its offsets. A wrong index breaks this for its file only: the reader detects it, and
looks the offsets up again (`slice_reading`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from duralog.format.filenames import FileKind
from duralog.format.index_entries import AbortedTransaction
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.locations import LocatedStore, Location, location_of
from duralog.scanning.offset_ranges import (
    OffsetRange,
    OnDataLoss,
    data_loss,
    report_loss,
)
from duralog.scanning.remote_work import read_largest_timestamps, side_by_side
from duralog.scanning.slices import FileIdentity, Slice
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.view import LogView
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.sparse_index import OffsetIndex
from duralog.storage.store import Store

DEFAULT_MAX_SLICE_BYTES = 128 << 20

MANY_TASKS = 10_000
WORTH_A_TASK_BYTES = 16 << 20
"""Smaller slices are made only up to `MANY_TASKS`."""

_FILE_COST_BYTES = 256 << 10
"""Opening one more file takes about as long as reading this much more."""

_FAR_BEHIND = 2**63

_MOST_SHOWN = 10
"""Topics in a line of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The slices to read, and the amount that was pruned."""

    slices: tuple[Slice, ...]
    """By partition and offset."""
    tasks: tuple[tuple[Slice, ...], ...]
    """The same slices, grouped by task."""
    total_bytes: int
    """Of all logs of the partitions."""
    segments_total: int
    segments_planned: int
    partitions: int
    location: str
    """The path or URL of the directory."""
    topics: tuple[str, ...]

    @property
    def planned_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)

    def to_dict(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "topics": list(self.topics),
            "partitions": self.partitions,
            "segments_planned": self.segments_planned,
            "segments_total": self.segments_total,
            "planned_bytes": self.planned_bytes,
            "total_bytes": self.total_bytes,
            "slices": len(self.slices),
            "tasks": len(self.tasks),
        }

    def __str__(self) -> str:
        share = self.planned_bytes / self.total_bytes if self.total_bytes else 0
        return (
            f"{self.planned_bytes} of {self.total_bytes} bytes ({share:.1%}), {self.segments_planned} of"
            f" {self.segments_total} segments of {self.partitions} partitions, in {len(self.slices)} slices for"
            f" {len(self.tasks)} tasks; topics {self._shown_topics()}"
        )

    def _shown_topics(self) -> str:
        more = f" and {len(self.topics) - _MOST_SHOWN} more" if len(self.topics) > _MOST_SHOWN else ""
        return f"{', '.join(self.topics[:_MOST_SHOWN]) or 'none'}{more}"


def plan(
    store: Store,
    ranges: Mapping[TopicPartition, OffsetRange],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
    min_slices: int | None = None,
    times: TimeRange = ANY_TIME,
    on_data_loss: OnDataLoss | None = None,
) -> Plan:
    """How to read these ranges.

    Records outside of `times` may be left out, but need not be. With `min_slices`, there are about that many tasks at
    least. A size below `WORTH_A_TASK_BYTES` that would make more than `MANY_TASKS` is raised: with one slice per index
    entry, Spark would spend its time on tasks. If the log does not have a range completely, that is data loss.
    """
    if max_slice_bytes <= 0:
        raise ValueError("max_slice_bytes must be positive")
    location = location_of(store)
    if isinstance(store, LocatedStore):
        store.list_ahead(ranges)

    def plan_partition(item: tuple[TopicPartition, OffsetRange]) -> _PartitionPlan:
        usable = times.within(store.topic_config(item[0].topic))
        return _PartitionPlan(store, location, *item, isolation, usable)

    planned = []
    for found in side_by_side(plan_partition, sorted(ranges.items()), is_remote=location.is_remote):
        if found.loss is not None:
            report_loss(found.loss, on_data_loss)
        planned.append(found)
    extents = [extent for found in planned for extent in found.extents]
    weight = sum(extent.size_bytes + _FILE_COST_BYTES for extent in extents)
    target_bytes = max_slice_bytes if not min_slices else min(max_slice_bytes, -(-weight // min_slices))
    least_bytes = min(WORTH_A_TASK_BYTES, weight // max(MANY_TASKS, min_slices or 0))
    target_bytes = max(target_bytes, least_bytes)
    slices = [part for found in planned for part in found.slices(target_bytes)]
    return Plan(
        slices=tuple(slices),
        tasks=tuple(packed(slices, target_bytes)),
        total_bytes=sum(found.total_bytes for found in planned),
        segments_total=sum(found.segments_total for found in planned),
        segments_planned=len(extents),
        partitions=len(planned),
        location=location.url,
        topics=tuple(sorted({partition.topic for partition in ranges})),
    )


@dataclass(frozen=True, slots=True)
class _Extent:
    """Part of a segment that is to be read."""

    segment: Segment
    start_offset: int
    end_offset: int
    position: int
    end_position: int
    is_active: bool

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position

    def cuts(self, target_bytes: int) -> Iterator[tuple[int, int, int]]:
        """The cuts: the offset and position of a batch, and where the batches of its entry end."""
        parts = -(-self.size_bytes // target_bytes)
        if parts < 2:
            return
        index = self.segment.offset_index
        last_position = self.position
        for part in range(1, parts):
            wanted = self.position + part * self.size_bytes // parts
            entry = index.upper_bound_by_position(max(wanted, last_position + 1))
            following = None if entry is None else index.upper_bound_by_position(entry.position + 1)
            if entry is None or following is None or following.position > self.end_position:
                return
            if self.start_offset < entry.offset < self.end_offset:
                yield entry.offset, entry.position, following.position
                last_position = entry.position


class _PartitionPlan:
    """The plan of one partition."""

    def __init__(
        self,
        store: Store,
        location: Location,
        partition: TopicPartition,
        wanted: OffsetRange,
        isolation: Isolation,
        times: TimeRange,
    ) -> None:
        self._location = location
        self._partition = partition
        self._isolation = isolation
        self._topic_id = store.topic_id(partition.topic)
        view = store.partition(*partition).view
        limit = view.limit(isolation)
        within = OffsetRange(max(wanted.start_offset, view.start_offset), min(wanted.end_offset, limit))
        is_lost = wanted.start_offset < wanted.end_offset and within != wanted
        self.loss = data_loss(partition, wanted, view, limit) if is_lost else None
        self.total_bytes = view.segments.size_bytes
        self.segments_total = len(view.segments)
        if times.not_before_ms is not None and location.is_remote:
            read_largest_timestamps(view.segments.from_floor(within.start_offset))
        self.extents = list(_extents(view, within, times))
        is_hiding = isolation is Isolation.READ_COMMITTED and self.extents
        self._aborted = Aborted(view.indexed_aborted_transactions(*within)) if is_hiding else None
        view.segments.active.let_go()

    def slices(self, target_bytes: int) -> Iterator[Slice]:
        for extent in self.extents:
            path = extent.segment.path(FileKind.LOG)
            identity = None
            if not extent.is_active:
                identity = FileIdentity(extent.segment.size_bytes, extent.segment.modified_ms)
            offset, position = extent.start_offset, extent.position
            for cut_offset, cut_position, following in extent.cuts(target_bytes):
                yield self._slice(extent, path, identity, (offset, cut_offset), (position, following))
                offset, position = cut_offset, cut_position
            last = (position, extent.end_position)
            yield self._slice(extent, path, identity, (offset, extent.end_offset), last)

    def _slice(
        self,
        extent: _Extent,
        path: str,
        identity: FileIdentity | None,
        offsets: tuple[int, int],
        positions: tuple[int, int],
    ) -> Slice:
        return Slice(
            location=self._location,
            topic=self._partition.topic,
            partition=self._partition.partition,
            start_offset=offsets[0],
            end_offset=offsets[1],
            path=path,
            base_offset=extent.segment.base_offset,
            position=positions[0],
            end_position=positions[1],
            identity=identity,
            topic_id=self._topic_id,
            isolation=self._isolation,
            aborted=() if self._aborted is None else self._aborted.between(*offsets),
        )


def _extents(view: LogView, wanted: OffsetRange, times: TimeRange) -> Iterator[_Extent]:
    segments = view.segments.from_floor(wanted.start_offset)
    for place, segment in enumerate(segments):
        if segment.base_offset >= wanted.end_offset:
            return
        is_active = place == len(segments) - 1
        size = view.end_position if is_active else segment.size_bytes
        if not size:
            continue
        next_base = view.end_offset if is_active else segments[place + 1].base_offset
        start, end = max(wanted.start_offset, segment.base_offset), min(wanted.end_offset, next_base)
        start = max(start, times.first_offset(segment))
        if start >= end or times.is_before(segment):
            continue
        # Entries have the last offsets of batches, so one that is not above an offset leads to a batch not after it.
        position = segment.offset_index.lookup(start).position if start > segment.base_offset else 0
        end_position = size if end == next_base else min(_end_position(segment.offset_index, end), size)
        if position < end_position:
            yield _Extent(segment, start, end, position, end_position, is_active)


def _end_position(index: OffsetIndex, end_offset: int) -> int:
    """The start of a batch that has only offsets from `end_offset` on; a large number if the index has none."""
    # The batch of the last entry below the end ends before it, the next entry's may hold it.
    before = index.lookup(end_offset - 1)
    entry = index.upper_bound_by_position(before.position + 1)
    if before.offset < end_offset - 1 and entry is not None:
        entry = index.upper_bound_by_position(entry.position + 1)
    return _FAR_BEHIND if entry is None else entry.position


class Aborted:
    """The aborted transactions of a partition from its indexes, as far as a range of offsets needs them.

    To find those that an index lacks, the log has to be scanned: the reader of a slice does that (`part_reading`).
    """

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        """In the order of their markers."""
        self._transactions = transactions
        self._last_offsets = [transaction.last_offset for transaction in transactions]
        first_offsets = (transaction.first_offset for transaction in reversed(transactions))
        self._first_offsets = [*accumulate(first_offsets, min)][::-1]
        """The lowest one of each transaction and all that follow, so they rise, too."""

    def between(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        first = bisect_left(self._last_offsets, start_offset)
        end = bisect_left(self._first_offsets, end_offset)
        return tuple(found for found in self._transactions[first:end] if found.first_offset < end_offset)


def task_weight(slices: Iterable[Slice]) -> int:
    """The weight of a task: its bytes, plus the cost of opening files as bytes."""
    return sum(found.size_bytes + _FILE_COST_BYTES for found in slices)


def packed(slices: list[Slice], target_bytes: int) -> Iterator[tuple[Slice, ...]]:
    """Groups of neighbours, up to the size of a slice."""
    task: list[Slice] = []
    weight = 0
    for part in slices:
        cost = part.size_bytes + _FILE_COST_BYTES
        if task and weight + cost > target_bytes:
            yield tuple(task)
            task, weight = [], 0
        task.append(part)
        weight += cost
    if task:
        yield tuple(task)
