"""Carries out the plan of a heal for one partition: opens the ranges that it names, and has them written.

Copies are healed one after the other. A file that one of them needs and another one replaces is opened before anything
changes: an open file keeps its contents. A copy that fails does not stop the others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from duralog.errors import DuralogError, StorageError
from duralog.format.filenames import FileKind, PartitionFolder, SegmentFile
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.heal_plan import CopyPlan, Part, PartitionPlan, PlannedSegment
from duralog.scanning.locations import Location
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.disk.shadow import ShadowFileSystem
from duralog.storage.recovery.leftovers import settle_leftovers
from duralog.storage.recovery.segment_rewrite import BeforeChange, ByteRange, NewSegment
from duralog.storage.repair.healed_log import HealedLog, Replacement, heal_log
from duralog.storage.repair.settled_log import settle_log

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDirectory:
    """A directory whose copies are changed.

    REQUIRES: it is locked, and does not count as closed cleanly. Its checkpoints say nothing about a copy that does not
    hold while the copy is changed: not that it is compacted from its first change on, nor where another log starts.
    """

    files: FileSystem
    path: str
    log_start_offset: int
    """Of the partition, in `log-start-offset-checkpoint`."""

    def folder_of(self, partition: TopicPartition) -> str:
        return f"{self.path}/{PartitionFolder(*partition).name}"


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    copy: CopyPlan
    failure: str | None = None
    """Why the copy could not be healed."""
    is_in_doubt: bool = False
    """It failed half-way: the log must be recovered, or healed again."""


def heal_partition(
    plan: PartitionPlan, targets: Mapping[Location, TargetDirectory], *, clock: Clock
) -> list[CopyOutcome]:
    """Heal the copies of a partition in these directories.

    REQUIRES: what a crash has left in the folders of these copies was finished before the planning.
    """
    outcomes: list[CopyOutcome] = []
    changing = {copy.number for copy in plan.copies if copy.number is not None}
    with ExitStack() as opened:
        sources = _Sources(plan, changing, opened)
        for copy in plan.copies:
            for part in copy.filled:
                if part.copy in changing:
                    sources.open_early(part)
        for copy in plan.copies:
            try:
                _heal_copy(plan, copy, targets[copy.location], sources, clock)
            except DuralogError as error:
                _logger.warning("%s: %s could not be healed: %s", copy.location.url, plan.partition, error)
                outcomes.append(CopyOutcome(copy, str(error), is_in_doubt=True))
            else:
                outcomes.append(CopyOutcome(copy))
    return outcomes


def _heal_copy(plan: PartitionPlan, copy: CopyPlan, target: TargetDirectory, sources: _Sources, clock: Clock) -> None:
    folder = target.folder_of(plan.partition)

    def before_change(base_offset: int) -> None:
        if base_offset < copy.first_changed:
            raise StorageError(
                f"{folder}: the segment at offset {base_offset} is damaged, and was not when it was compared: run heal"
                " again"
            )

    healed = HealedLog(
        dropped=copy.dropped,
        replaced=[
            Replacement([sources.segment(segment) for segment in group], sources.modified_ms(group))
            for group in copy.replaced
        ],
        removed=copy.removed,
        truncated=copy.truncated,
        first_changed=copy.first_changed,
        epochs=copy.epochs,
        topic_id=plan.topic_id,
    )
    heal_log(target.files, folder, healed, clock=clock, before_change=before_change)
    _check_end(target, folder, plan, copy, clock, before_change)


def _check_end(
    target: TargetDirectory,
    folder: str,
    plan: PartitionPlan,
    copy: CopyPlan,
    clock: Clock,
    before_change: BeforeChange,
) -> None:
    start = target.log_start_offset
    end = settle_log(
        target.files,
        folder,
        plan.partition,
        config=plan.config,
        log_start_offset=start if 0 <= start <= copy.end_offset else 0,
        clock=clock,
        before_change=before_change,
    )
    if end != copy.end_offset:
        raise StorageError(f"{folder}: the log ends at offset {end} and not at {copy.end_offset}: run heal again")


class _Sources:
    """The log files of the copies of a partition."""

    def __init__(self, plan: PartitionPlan, changing: Collection[int], opened: ExitStack) -> None:
        self._folder = PartitionFolder(*plan.partition).name
        self._locations: Sequence[Location] = plan.sources
        self._changing = changing
        self._opened = opened
        self._places: dict[int, tuple[FileSystem, str]] = {}
        self._early: dict[tuple[int, int], File] = {}

    def open_early(self, part: Part) -> None:
        key = part.copy, part.segment
        if key not in self._early:
            files, path = self._place(part)
            self._early[key] = files.open(path)
            self._opened.callback(self._early[key].close)

    def segment(self, planned: PlannedSegment) -> NewSegment:
        return NewSegment(planned.base_offset, [self._range(part) for part in planned.parts])

    def modified_ms(self, group: Sequence[PlannedSegment]) -> int | None:
        """The time of the first log file: it stands for the time of records that have none."""
        for part in _parts(group):
            files, path = self._place(part)
            entry = files.entry(path)
            if entry is not None:
                return entry.modified_ms
        return None

    def _range(self, part: Part) -> ByteRange:
        early = self._early.get((part.copy, part.segment))
        if early is not None:
            return ByteRange(early, part.start, part.end)
        files, path = self._place(part)
        return ByteRange(_OpenedOnRead(files, path, part.end), part.start, part.end)

    def _place(self, part: Part) -> tuple[FileSystem, str]:
        if part.copy not in self._places:
            self._places[part.copy] = self._connected(part.copy)
        files, folder = self._places[part.copy]
        return files, os.path.join(folder, SegmentFile(part.segment, FileKind.LOG).name)

    def _connected(self, copy: int) -> tuple[FileSystem, str]:
        files, path = self._locations[copy].connect()
        folder = os.path.join(path, self._folder)
        if copy not in self._changing:
            # A copy that is not changed may have what a crash has left: names are as if that were finished.
            files = ShadowFileSystem(files)
            settle_leftovers(files, folder)
        return files, folder


class _OpenedOnRead:
    """A range of a log file that is open from its first read to its last: a heal may need thousands of files."""

    def __init__(self, files: FileSystem, path: str, end: int) -> None:
        self._files = files
        self.name = path
        self.size = end
        self._file: File | None = None

    def read(self, position: int, size: int) -> Any:
        if self._file is None:
            self._file = self._files.open(self.name)
        data = self._file.read(position, size)
        if position + size >= self.size:
            self._file.close()
            self._file = None
        return data


def _parts(group: Sequence[PlannedSegment]) -> Iterator[Part]:
    for segment in group:
        yield from segment.parts
