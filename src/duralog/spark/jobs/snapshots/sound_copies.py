"""Of a cluster: slices of copies without damage, found before the tasks of a snapshot begin.

These read a slice more than once and cannot start again in the middle of it. So each slice is read before, without
decoding its records, by tasks of the same size, and damaged ones are replaced by slices of other copies.

For a run that continues the last snapshot, the tasks also look for offsets that are missing in what is new. Cleaners of
the nodes run at different times, and a backup is older than the run, so no clock tells whether tombstones are gone. If
every offset is there, they are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.sound_slices import sound_slices
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.executor import Advance, Executor, ignore_progress
from duralog.scanning.logs import AnyPlan
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.slices import DataLoss, Slice, slices_by_task
from duralog.spark.jobs.snapshots.gaps import first_gap

_RUN = "snapshot: copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToCheck:
    """What is read of one topic."""

    planned: AnyPlan
    ranges: Mapping[TopicPartition, OffsetRange]
    is_incremental: bool


@dataclass(slots=True, kw_only=True)
class SoundCopies:
    slices: list[Slice] = field(default_factory=list)
    healed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Offsets that no copy has, although no cleaner has removed them."""
    has_gaps: bool = False
    """Whether offsets are missing. Only looked for in what is new since a snapshot."""


@dataclass(frozen=True, slots=True)
class _Task:
    slices: tuple[Slice, ...]
    looks_for_gaps: bool

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


def check_copies(executor: Executor, wanted: Sequence[ToCheck], max_slice_bytes: int) -> list[SoundCopies]:
    """For each topic what to read instead of its plan."""
    tasks = [list(_tasks(each, max_slice_bytes)) for each in wanted]
    checked = iter(
        executor.run(
            [task for of_topic in tasks for task in of_topic],
            _check,
            weight=lambda task: task.size_bytes,
            name=_RUN,
        )
    )
    found = []
    for each, of_topic in zip(wanted, tasks, strict=True):
        total = SoundCopies()
        for _ in of_topic:
            part = next(checked)
            total.slices += part.slices
            total.healed += part.healed
            total.missing += part.missing
            total.has_gaps |= part.has_gaps
        total.has_gaps |= each.is_incremental and not _covers(total.slices, each.ranges)
        found.append(total)
    return found


def _tasks(wanted: ToCheck, max_slice_bytes: int) -> Iterator[_Task]:
    for _, slices in groupby(wanted.planned.slices, key=lambda found: found.partition):
        for some in slices_by_task(slices, max_slice_bytes):
            yield _Task(some, wanted.is_incremental)


def _check(task: _Task, _: Advance = ignore_progress) -> SoundCopies:
    healed: list[HealedRange] = []
    missing: list[DataLoss] = []
    slices = list(sound_slices(task.slices, healed.append, missing.append))
    has_gaps = task.looks_for_gaps and any(
        first_gap([found], found.start_offset) < found.end_offset for found in slices
    )
    return SoundCopies(slices=slices, healed=list(map(str, healed)), missing=list(map(str, missing)), has_gaps=has_gaps)


def _covers(slices: Sequence[Slice], ranges: Mapping[TopicPartition, OffsetRange]) -> bool:
    """Whether every offset of the ranges is in a slice."""
    reached = {partition.partition: found.start_offset for partition, found in ranges.items()}
    for found in slices:
        if found.start_offset <= reached[found.partition]:
            reached[found.partition] = max(reached[found.partition], found.end_offset)
    return all(reached[partition.partition] >= found.end_offset for partition, found in ranges.items())
