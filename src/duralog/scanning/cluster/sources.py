"""What to read from which copy: slices of the chosen copies, as a plan of one directory has them.

Each slice says where else the same batches are (`LogSources`), for the rare task that meets damage (`healing`). Values
that travel to the process that reads.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from duralog.config.plurals import plural
from duralog.errors import DuralogError
from duralog.format.index_entries import AbortedTransaction
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import Part
from duralog.scanning.cluster.cluster import Cluster, Copies
from duralog.scanning.cluster.compacted.compacted_source import MixedPart
from duralog.scanning.cluster.explained import ExplainedPartition, explained
from duralog.scanning.cluster.problems import Problem
from duralog.scanning.cluster.served_parts import clipped, parts_of, parts_to_read, served_parts
from duralog.scanning.offset_ranges import OffsetRange, OnDataLoss, report_loss
from duralog.scanning.planning import DEFAULT_MAX_SLICE_BYTES, Aborted, packed, plan, task_weight
from duralog.scanning.remote_work import side_by_side
from duralog.scanning.slices import DataLoss, LogSources, Slice, Source
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.storage.log.isolation import Isolation

_logger = logging.getLogger(__name__)

_NOTHING = OffsetRange(0, 0)
_MOST_EXPLAINED = 50
"""Partitions in a text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedRange:
    """Offsets that the chosen copy does not have, or not without damage, and that were read from another copy."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    path: str
    """The directory or the file with the damage."""
    reason: str
    """What is wrong there."""
    source: str
    """The directory that the records come from."""

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: offsets {self.first_offset} to {self.last_offset} were read from"
            f" {self.source}: {self.path}: {self.reason}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    tasks: tuple[tuple[Slice, ...], ...]
    """By topic, partition and offset."""
    sources: Mapping[TopicPartition, LogSources]
    healed: tuple[HealedRange, ...]
    """What is planned from other than the chosen copies, since these end too early."""
    mixed: tuple[MixedPart, ...] = ()
    """Compacted parts of which no copy is whole."""
    explained: tuple[ExplainedPartition, ...] = field(default=(), repr=False)
    """Which copy of each partition is read, why, and what the others have."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(chain.from_iterable(self.tasks))

    @property
    def planned_bytes(self) -> int:
        return sum(found.size_bytes for task in self.tasks for found in task)

    def to_dict(self) -> dict[str, Any]:
        return {
            "partitions": [each.to_dict() for each in self.explained],
            "planned_bytes": self.planned_bytes,
            "slices": len(self.slices),
            "tasks": len(self.tasks),
            "healed": [each.to_dict() for each in self.healed],
            "mixed": [each.to_dict() for each in self.mixed],
        }

    def summary(self) -> str:
        partitions = Counter(found.sources[0].location.url for found in self.sources.values() if found.sources)
        chosen = ", ".join(f"{plural(count, 'partition')} from {url}" for url, count in sorted(partitions.items()))
        return (
            f"{self.planned_bytes} bytes of {plural(len(self.sources), 'partition')}, in {len(self.slices)} slices for"
            f" {len(self.tasks)} tasks; {chosen or 'nothing to read'}"
        )

    def __str__(self) -> str:
        lines = [self.summary(), *map(str, self.explained[:_MOST_EXPLAINED])]
        if len(self.explained) > _MOST_EXPLAINED:
            lines.append(f"and {plural(len(self.explained) - _MOST_EXPLAINED, 'partition')} more")
        return "\n".join([*lines, *map(str, self.healed), *map(str, self.mixed)])


def plan_cluster(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    times: TimeRange = ANY_TIME,
    max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
    to_end: bool = False,
) -> ClusterPlan:
    """How to read these partitions, each from the copy that consumers were served, up to the high watermark.

    With `to_end` up to the end of the log. Raises `StorageError` for a partition of which no copy can be read.
    """
    ranges = {}
    for copies in loaded(cluster, partitions):
        parts = served_parts(copies, isolation, to_end=to_end)
        ranges[copies.partition] = OffsetRange(parts[0].start_offset, parts[-1].end_offset) if parts else _NOTHING
    return plan_ranges(cluster, ranges, isolation=isolation, times=times, max_slice_bytes=max_slice_bytes)


def plan_ranges(
    cluster: Cluster,
    ranges: Mapping[TopicPartition, OffsetRange],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    times: TimeRange = ANY_TIME,
    max_slice_bytes: int = DEFAULT_MAX_SLICE_BYTES,
    min_slices: int | None = None,
    on_data_loss: OnDataLoss | None = None,
) -> ClusterPlan:
    """How to read these offsets, also those above the high watermark. What no copy has is data loss.

    With `min_slices`, there are about that many tasks at least.
    """
    mixed: list[MixedPart] = []
    wanted = _Wanted(isolation, times, on_data_loss, mixed.append)
    found = list(loaded(cluster, ranges))

    def parts_of(copies: Copies) -> list[Part]:
        return _within(copies, ranges[copies.partition], wanted)

    found_parts = side_by_side(parts_of, found, is_remote=cluster.is_remote)
    parts = {copies.partition: each for copies, each in zip(found, found_parts, strict=True)}
    sources = {copies.partition: sources_of(copies) for copies in found}
    rounds = _rounds(cluster, found, parts)
    aborted = {copies.partition: _aborted(copies, parts[copies.partition], wanted) for copies in found}

    def sliced(target_bytes: int) -> list[Slice]:
        slices = _slices(cluster, rounds, sources, wanted, target_bytes)
        return [_hiding(each, aborted[TopicPartition(each.topic, each.partition)]) for each in slices]

    slices = sliced(max_slice_bytes)
    tasks = tuple(packed(slices, max_slice_bytes))
    if min_slices is not None and len(tasks) < min_slices and slices:
        target_bytes = min(max_slice_bytes, -(-task_weight(slices) // min_slices))
        tasks = tuple(packed(sliced(target_bytes), target_bytes))
    return ClusterPlan(
        tasks=tasks,
        sources=sources,
        healed=tuple(each for copies in found for each in _healed_by_plan(copies, parts[copies.partition])),
        mixed=tuple(sorted(mixed, key=lambda each: (each.topic, each.partition))),
        explained=tuple(map(explained, found)),
    )


def loaded(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Iterator[Copies]:
    """The copies of these partitions, sorted. Raises `StorageError` for one of which no copy can be read."""
    wanted = sorted(partitions)
    for partition, found in zip(wanted, cluster.load(wanted), strict=True):
        # What cannot be read raises the error again.
        yield cluster.copies(partition) if isinstance(found, Problem) else found


@dataclass(frozen=True, slots=True)
class _Wanted:
    isolation: Isolation
    times: TimeRange
    on_data_loss: OnDataLoss | None
    on_mixed: Callable[[MixedPart], None]


def _within(copies: Copies, wanted: OffsetRange, how: _Wanted) -> list[Part]:
    if wanted.start_offset >= wanted.end_offset:
        return []
    there = parts_of(copies, how.isolation, to_end=True)
    parts = clipped(there, wanted)
    has_start = parts and parts[0].start_offset == wanted.start_offset
    if not has_start or parts[-1].end_offset != wanted.end_offset:
        topic, number = copies.partition
        loss = DataLoss(
            topic=topic,
            partition=number,
            asked_start=wanted.start_offset,
            asked_end=wanted.end_offset,
            available_start=there[0].start_offset if there else copies.choice.start_offset,
            available_end=there[-1].end_offset if there else copies.choice.start_offset,
        )
        report_loss(loss, how.on_data_loss)
    return parts_to_read(copies, parts, how.isolation, how.on_mixed)


def _rounds(
    cluster: Cluster, found: Iterable[Copies], parts: Mapping[TopicPartition, Sequence[Part]]
) -> list[dict[int, dict[TopicPartition, OffsetRange]]]:
    """Ranges by the number of their directory: the first parts of all partitions, the second ones, and so on."""
    numbers = {directory: number for number, directory in enumerate(cluster.directories)}
    rounds: list[dict[int, dict[TopicPartition, OffsetRange]]] = []
    for copies in found:
        for turn, part in enumerate(parts[copies.partition]):
            if len(rounds) == turn:
                rounds.append({})
            ranges = rounds[turn].setdefault(numbers[copies.copies[part.copy].directory], {})
            ranges[copies.partition] = OffsetRange(part.start_offset, part.end_offset)
    return rounds


def _slices(
    cluster: Cluster,
    rounds: Sequence[Mapping[int, Mapping[TopicPartition, OffsetRange]]],
    sources: Mapping[TopicPartition, LogSources],
    wanted: _Wanted,
    max_slice_bytes: int,
) -> list[Slice]:
    slices: list[Slice] = []
    for ranges_by_directory in rounds:
        for number, ranges in ranges_by_directory.items():
            planned = plan(
                cluster.directories[number].store,
                ranges,
                isolation=wanted.isolation,
                max_slice_bytes=max_slice_bytes,
                times=wanted.times,
                on_data_loss=wanted.on_data_loss,
            )
            slices += (
                replace(found, copies=sources[TopicPartition(found.topic, found.partition)]) for found in planned.slices
            )
    slices.sort(key=lambda found: (found.topic, found.partition, found.start_offset))
    return slices


def _aborted(copies: Copies, parts: Sequence[Part], wanted: _Wanted) -> Aborted:
    """The aborted transactions that any copy knows: one that has lost a segment has lost the markers in it."""
    if wanted.isolation is not Isolation.READ_COMMITTED or not parts:
        return Aborted(())
    found: dict[tuple[int, int], AbortedTransaction] = {}
    chosen_first = sorted(range(len(copies.copies)), key=lambda number: number != copies.choice.copy)
    for number in chosen_first:
        view, agreed = copies.copies[number].view, copies.choice.agreed[number]
        with suppress(DuralogError):  # That copy is damaged, too.
            for each in view.indexed_aborted_transactions(parts[0].start_offset, parts[-1].end_offset):
                if each.last_offset < agreed:
                    found.setdefault((each.producer_id, each.last_offset), each)
    return Aborted(sorted(found.values(), key=lambda each: each.last_offset))


def _hiding(found: Slice, aborted: Aborted) -> Slice:
    hidden = aborted.between(found.start_offset, found.end_offset)
    return replace(found, aborted=hidden) if hidden != found.aborted else found


def sources_of(copies: Copies) -> LogSources:
    choice = copies.choice
    return LogSources(
        tuple(
            Source(copies.copies[number].directory.location, copies.copies[number].state.start_offset, agreed)
            for number in copies.order
            if (agreed := choice.agreed[number]) > copies.copies[number].state.start_offset
        ),
        choice.epochs,
        copies.dense_from,
        None if copies.is_compacted is None else copies.dense_from,
    )


def _healed_by_plan(copies: Copies, parts: Sequence[Part]) -> Iterable[HealedRange]:
    chosen = copies.chosen
    for part in parts:
        if part.copy != copies.choice.copy:
            reason = "a segment is damaged, empty or missing"
            if part.end_offset > chosen.state.end_offset:
                reason = f"the log ends at offset {chosen.state.end_offset}"
            elif part.start_offset < chosen.state.start_offset:
                reason = f"the files start at offset {chosen.state.start_offset}"
            yield HealedRange(
                topic=copies.partition.topic,
                partition=copies.partition.partition,
                first_offset=part.start_offset,
                last_offset=part.end_offset - 1,
                path=chosen.log.folder,
                reason=reason,
                source=copies.copies[part.copy].url,
            )
