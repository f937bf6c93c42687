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
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

from duralog.config.plurals import plural
from duralog.errors import DuralogError
from duralog.format.index_entries import AbortedTransaction
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.choice import Part
from duralog.scanning.cluster.cluster import Cluster, Copies
from duralog.scanning.cluster.compacted_source import MixedPart, compacted_source, mixed_part
from duralog.scanning.cluster.directory import Copy
from duralog.scanning.cluster.explained import ExplainedPartition, explained
from duralog.scanning.cluster.offset_sets import Ranges, without
from duralog.scanning.cluster.problems import LOST_ADVICE, Problem
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


def served_parts(copies: Copies, isolation: Isolation, *, to_end: bool = False) -> list[Part]:
    """What consumers of this isolation level were served, and from which copy it is read. Logs what no copy has."""
    for low, high in lost_ranges(copies):
        _warn_once(
            f"{copies.partition}: consumers were served offsets {low} to {high}, and no copy has them: they are not"
            f" read; duralog cluster verify shows what each copy lacks. {LOST_ADVICE}"
        )
    parts = _with_ends_of_transactions(copies, _parts(copies, isolation, to_end=to_end), isolation)
    if not parts:
        return []
    last = parts[-1]
    end = copies.copies[last.copy].limit(isolation, last.end_offset)
    return _clipped(parts, OffsetRange(parts[0].start_offset, end))


@lru_cache(maxsize=1024)
def _warn_once(text: str) -> None:
    """A stream opens the directories again for each of its batches."""
    _logger.warning("%s", text)


def lost_ranges(copies: Copies) -> Ranges:
    """The offsets that consumers were served and that no copy has, as far as the ends of the copies show it."""
    choice = copies.choice
    if copies.dense_from is None:
        return [(choice.end_offset, choice.high_watermark - 1)] if choice.end_offset < choice.high_watermark else []
    there = choice.parts([copy.state for copy in copies.copies])
    served = (max(choice.start_offset, copies.dense_from), choice.high_watermark - 1)
    return without(served, [(part.start_offset, part.end_offset - 1) for part in there])


@dataclass(frozen=True, slots=True)
class _Wanted:
    isolation: Isolation
    times: TimeRange
    on_data_loss: OnDataLoss | None
    on_mixed: Callable[[MixedPart], None]


def _parts(copies: Copies, isolation: Isolation, *, to_end: bool) -> list[Part]:
    states = [copy.state for copy in copies.copies]
    parts = _around_empty_segments(copies, copies.choice.parts(states, to_end=to_end))
    if isolation is Isolation.READ_COMMITTED and len(parts) > 1:
        # A transaction may begin in one part and end in another: a copy that has all of them knows it.
        start, end = parts[0].start_offset, parts[-1].end_offset
        whole = _other_copy(copies, copies.choice.copy, start, end)
        if whole is not None:
            return _around_empty_segments(copies, [Part(whole, start, end)])
    return parts


def _with_ends_of_transactions(copies: Copies, parts: list[Part], isolation: Isolation) -> list[Part]:
    """Read from a copy that has the end of each transaction, if the chosen one has lost a segment with one.

    A copy that has a transaction's first batch knows of it. If it is not open there, it has ended.
    """
    if isolation is not Isolation.READ_COMMITTED or len(parts) != 1:
        return parts
    (part,) = parts
    chosen = copies.copies[part.copy]
    if chosen.view.last_stable_offset >= part.end_offset:
        return parts
    firsts = [entry.transaction_first_offset for entry in chosen.log.producers() if entry.transaction_first_offset >= 0]
    for number, copy in enumerate(copies.copies):
        is_whole = copy.state.start_offset <= part.start_offset and copies.choice.agreed[number] >= part.end_offset
        if (
            is_whole
            and copy.view.last_stable_offset > chosen.view.last_stable_offset
            and all(_has_batch(copy, first) for first in firsts if first < part.end_offset)
        ):
            return _around_empty_segments(copies, [Part(number, part.start_offset, part.end_offset)])
    return parts


def _has_batch(copy: Copy, offset: int) -> bool:
    with suppress(DuralogError):  # That copy is damaged there.
        for piece in copy.view.scanned_from(offset):
            batches = piece.batches
            return bool(((batches["base_offset"] <= offset) & (batches["last_offset"] >= offset)).any())
    return False


def _within(copies: Copies, wanted: OffsetRange, how: _Wanted) -> list[Part]:
    if wanted.start_offset >= wanted.end_offset:
        return []
    there = _parts(copies, how.isolation, to_end=True)
    parts = _clipped(there, wanted)
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
    return _of_whole_copy(copies, _with_ends_of_transactions(copies, parts, how.isolation), how)


def _of_whole_copy(copies: Copies, parts: list[Part], how: _Wanted) -> list[Part]:
    """The compacted part from one copy that has all of it, if the chosen one is damaged there."""
    dense_from = copies.dense_from
    if not parts or (dense_from is not None and dense_from <= parts[0].start_offset):
        return parts
    source = compacted_source(copies)
    if source is None:
        return parts
    start, end = parts[0].start_offset, parts[-1].end_offset
    upto = min(source.end_offset, end)
    if source.copy is None or copies.copies[source.copy].state.start_offset > start:
        how.on_mixed(mixed_part(copies.partition, start, upto))
        return parts
    if how.isolation is Isolation.READ_COMMITTED and copies.choice.agreed[source.copy] >= end:
        # A transaction may begin in one part and end in another.
        upto = end
    whole = _clipped([Part(source.copy, start, upto)], OffsetRange(start, end))
    return [*whole, *_clipped(parts, OffsetRange(max(start, upto), end))]


def _clipped(parts: Iterable[Part], wanted: OffsetRange) -> list[Part]:
    clipped = (
        Part(part.copy, max(part.start_offset, wanted.start_offset), min(part.end_offset, wanted.end_offset))
        for part in parts
    )
    return [part for part in clipped if part.start_offset < part.end_offset]


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


def _around_empty_segments(copies: Copies, parts: Sequence[Part]) -> list[Part]:
    """An empty file that is not the last one has lost its batches: another copy has these."""
    found: list[Part] = []
    for part in parts:
        position = part.start_offset
        for start, end in _empty_segments(copies, part):
            other = _other_copy(copies, part.copy, start, end)
            if other is not None and position <= start:
                found += [Part(part.copy, position, start), Part(other, start, end)]
                position = end
        found.append(Part(part.copy, position, part.end_offset))
    return [part for part in found if part.start_offset < part.end_offset]


def _empty_segments(copies: Copies, part: Part) -> Iterable[tuple[int, int]]:
    if copies.dense_from is None:
        return
    for segment, following in pairwise(copies.copies[part.copy].view.segments.from_floor(part.start_offset)):
        if segment.base_offset >= part.end_offset:
            return
        start = max(segment.base_offset, part.start_offset, copies.dense_from)
        end = min(following.base_offset, part.end_offset)
        if not segment.size_bytes and start < end:
            yield start, end


def _other_copy(copies: Copies, damaged: int, start: int, end: int) -> int | None:
    able = [
        number
        for number, copy in enumerate(copies.copies)
        if number != damaged and copy.state.start_offset <= start and copies.choice.agreed[number] >= end
    ]
    return able[0] if able else None


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
