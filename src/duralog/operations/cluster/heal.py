"""Heal the copies of a cluster's partitions: what one lacks, or has damaged, comes from another, byte for byte.

The directories are locked while their copies are compared and changed. Those in an object store, and those that this
process may not write to, are read only. Partitions are independent of each other; if one fails, the others are healed.

What must always be true:
- A directory with a changed copy does not count as closed cleanly until all of its copies are healed and its
  checkpoints are written.
- Checkpoints never say more than what is in the folders. Before the first change, those of all copies that are to be
  changed are lowered, durably: no copy counts as compacted from its first change on, none as served after it diverges,
  and none as starting where a log does that had its name before. After the last change, they say what was healed.

If the machine dies in the middle, run the heal again: it finds what is left. Checkpoints of copies that were complete
may then say less than they could: Kafka recovers or compacts more at its next start.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from duralog.config.plurals import plural
from duralog.config.progress import OnProgress, ignore
from duralog.errors import StorageError
from duralog.format.filenames import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.cluster.explain import chosen_partitions
from duralog.operations.lock_holder import lock_holder_named
from duralog.operations.workers import TWO_THREADS, Threads, ignore_result
from duralog.scanning.cluster.cluster import Cluster, open_cluster
from duralog.scanning.cluster.directories import find_directories
from duralog.scanning.cluster.heal_plan import CopyPlan, PartitionPlan, set_aside_name
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.scanning.cluster.healing_files import CopyOutcome, TargetDirectory, heal_partition
from duralog.scanning.cluster.problems import Problem, ProblemKind
from duralog.scanning.locations import Location
from duralog.scanning.thread_executor import ThreadExecutor
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem, Lock, raise_open_file_limit
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.recovery.leftovers import has_unfinished_files, settle_leftovers
from duralog.storage.repair.repair import lock_for_repair


@dataclass(frozen=True, slots=True, kw_only=True)
class HealRequest:
    paths: Sequence[str]
    """Of log directories: paths, URLs, globs and manifests."""
    choice: Choice = EVERYTHING
    storage_options: Mapping[str, str] = field(default_factory=dict)
    truncate_acknowledged: bool = False
    """Also take batches out of a copy that no other one has and that were acknowledged. They go to quarantine."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedCopy:
    """What was wrong with a copy, and what was done about it, or would be."""

    partition: TopicPartition
    plan: CopyPlan
    sources: tuple[str, ...]
    """The directories, by the numbers in the plan."""
    failure: str | None = None
    """Why it was not healed."""

    @property
    def is_healed(self) -> bool:
        return self.failure is None

    @property
    def set_aside(self) -> str | None:
        """The new name of a folder that belongs to another topic."""
        other = self.plan.other_topic
        return None if other is None else set_aside_name(self.partition, other)

    def to_dict(self) -> dict[str, Any]:
        plan = self.plan
        orphans = plan.orphans
        return {
            "kind": "copy",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "node_id": plan.node_id,
            "directory": plan.location.url,
            "findings": list(plan.findings),
            "filled": [
                {
                    "first_offset": part.first_offset,
                    "last_offset": part.last_offset,
                    "bytes": part.size_bytes,
                    "from": self.sources[part.copy],
                }
                for part in plan.filled
            ],
            "quarantined": [
                {
                    "base_offset": gone.base_offset,
                    "position": gone.start,
                    "bytes": gone.end - gone.start,
                    "reason": gone.reason,
                }
                for gone in plan.dropped
            ],
            "only_here": None
            if orphans is None
            else {
                "first_offset": orphans.first_offset,
                "last_offset": orphans.last_offset,
                "batches": orphans.batches,
                "acknowledged": orphans.acknowledged,
            },
            "set_aside": self.set_aside,
            "start_offset": plan.start_offset,
            "end_offset": plan.end_offset,
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedPartition:
    partition: TopicPartition
    copies: tuple[HealedCopy, ...]
    """Those that were not as they should be."""
    sound: int
    """Copies that were."""
    lost: tuple[tuple[int, int], ...]
    """Offsets that consumers were served and that no copy has."""
    problems: tuple[Problem, ...]

    @property
    def left(self) -> int:
        """Copies that were not healed, cannot be read, or were not given; one more if offsets are lost."""
        unhealed = (ProblemKind.UNREADABLE_COPY, ProblemKind.REPLICA_MISSING)
        left = sum(problem.kind in unhealed for problem in self.problems)
        return sum(not copy.is_healed for copy in self.copies) + left + bool(self.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealReport:
    dry_run: bool
    directories: int
    partitions: tuple[HealedPartition, ...]
    problems: tuple[Problem, ...]
    """Of directories, and of partitions without a copy that can be read."""
    unreadable: int
    """Partitions without a copy that can be read."""
    seconds: float

    @property
    def healed(self) -> list[HealedCopy]:
        return [copy for each in self.partitions for copy in each.copies if copy.is_healed]

    @property
    def left(self) -> int:
        """Copies that were not healed, partitions with lost offsets, and those that cannot be read."""
        return sum(each.left for each in self.partitions) + self.unreadable

    @property
    def is_well(self) -> bool:
        return not self.left

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "summary",
            "dry_run": self.dry_run,
            "directories": self.directories,
            "partitions": len(self.partitions),
            "healed": len(self.healed),
            "sound": sum(each.sound for each in self.partitions),
            "filled_bytes": sum(copy.plan.filled_bytes for copy in self.healed),
            "quarantined_bytes": sum(copy.plan.quarantined_bytes for copy in self.healed),
            "left": self.left,
            "seconds": round(self.seconds, 3),
        }


def heal_cluster(
    request: HealRequest,
    workers: Threads = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[HealedPartition], None] = ignore_result,
) -> HealReport:
    """No process may have the directories open, not even for a dry run.

    `on_partition` is called with each partition at the end, by topic and number.
    """
    began = time.monotonic()
    locations, _ = find_directories(list(request.paths), request.storage_options)
    with _held(locations, dry_run=request.dry_run) as held:
        executor = ThreadExecutor(workers.count, on_progress)
        if not request.dry_run:
            for directory in held.values():
                directory.settle_leftovers(request.choice)
        with open_cluster(list(request.paths), request.storage_options) as cluster:
            problems = list(cluster.problems)
            plans, unreadable = _plans(cluster, request.choice, executor)
            problems += unreadable
            count = len(cluster.directories)
        work = [_allowed(plan, request, held) for plan in plans]
        outcomes = [_refused(each) for each in work] if request.dry_run else _heal(work, held, executor)
        partitions = tuple(
            HealedPartition(
                partition=plan.partition,
                copies=tuple(
                    HealedCopy(
                        partition=plan.partition,
                        plan=outcome.copy,
                        sources=tuple(location.url for location in plan.sources),
                        failure=outcome.failure,
                    )
                    for outcome in found
                ),
                sound=plan.sound,
                lost=plan.lost,
                problems=plan.problems,
            )
            for plan, found in zip(plans, outcomes, strict=True)
        )
    for each in partitions:
        on_partition(each)
    return HealReport(
        dry_run=request.dry_run,
        directories=count,
        partitions=partitions,
        problems=tuple(problems),
        unreadable=len(unreadable),
        seconds=time.monotonic() - began,
    )


def _plans(cluster: Cluster, choice: Choice, executor: ThreadExecutor) -> tuple[list[PartitionPlan], list[Problem]]:
    loaded = list(cluster.load(chosen_partitions(cluster, choice)))
    copies = [found for found in loaded if not isinstance(found, Problem)]
    plans = executor.run(
        copies,
        lambda found, _: plan_heal(cluster, found),
        name="compare",
        weight=lambda found: sum(copy.size_bytes for copy in found.copies),
    )
    return plans, [found for found in loaded if isinstance(found, Problem)]


@dataclass(frozen=True, slots=True)
class _Work:
    """A plan, with the copies that may be healed only, and why the others may not."""

    plan: PartitionPlan
    refused: tuple[CopyOutcome, ...]
    allowed: tuple[CopyPlan, ...]


def _allowed(plan: PartitionPlan, request: HealRequest, held: Mapping[str, _Held]) -> _Work:
    refused: list[CopyOutcome] = []
    allowed: list[CopyPlan] = []
    for copy in plan.copies:
        reason = _refusal(copy, request, held)
        if reason is None:
            allowed.append(copy)
        else:
            refused.append(CopyOutcome(copy, reason))
    return _Work(plan, tuple(refused), tuple(allowed))


def _refusal(copy: CopyPlan, request: HealRequest, held: Mapping[str, _Held]) -> str | None:
    if copy.location.is_remote:
        return "a directory in an object store can be a source, and is not changed: copy it to a disk and heal it there"
    if copy.location.url not in held:
        return "this process may not write to the directory: it was only read"
    orphans = copy.orphans
    if orphans is None:
        return None
    offsets = f"offsets {orphans.first_offset} to {orphans.last_offset}"
    if orphans.shared:
        return (
            f"another copy has {plural(orphans.shared, 'batch')} of it, too, {offsets}, and the copy that counts has"
            " others of the same leader epochs: that one may be the folder of another partition. Move the wrong folder"
            " out of its directory, and heal again"
        )
    if orphans.acknowledged and not request.truncate_acknowledged:
        below = "" if orphans.high_watermark is None else " below its high watermark"
        return (
            f"only this copy has {plural(orphans.acknowledged, 'batch')}{below}, {offsets}: producers may count"
            " on that. Read it first if you need it; to move it to quarantine, heal with --truncate-acknowledged"
        )
    return None


def _refused(work: _Work) -> list[CopyOutcome]:
    """Of a dry run: what would be healed, and what not."""
    return _in_order(work, [CopyOutcome(copy) for copy in work.allowed])


def _in_order(work: _Work, done: Sequence[CopyOutcome]) -> list[CopyOutcome]:
    by_copy = {id(outcome.copy): outcome for outcome in (*work.refused, *done)}
    return [by_copy[id(copy)] for copy in work.plan.copies]


def _heal(work: Sequence[_Work], held: Mapping[str, _Held], executor: ThreadExecutor) -> list[list[CopyOutcome]]:
    raise_open_file_limit()
    changes: dict[str, list[_Change]] = defaultdict(list)
    for each in work:
        for copy in each.allowed:
            changes[copy.location.url].append(_Change(each.plan, copy))
    failed: dict[int, CopyOutcome] = {}
    for url in sorted(changes):
        failed |= {id(outcome.copy): outcome for outcome in held[url].begin(changes[url])}

    def heal_one(each: _Work, _: Callable[[int], None]) -> list[CopyOutcome]:
        copies = tuple(copy for copy in each.allowed if id(copy) not in failed)
        if not copies:
            return []
        targets = {copy.location: held[copy.location.url].target(each.plan.partition) for copy in copies}
        return heal_partition(_with(each.plan, copies), targets, clock=wall_clock_ms)

    outcomes = executor.run(
        work, heal_one, name="heal", weight=lambda each: sum(copy.written_bytes for copy in each.allowed)
    )
    for each, done in zip(work, outcomes, strict=True):
        done += [failed[id(copy)] for copy in each.allowed if id(copy) in failed]
        for outcome in done:
            held[outcome.copy.location.url].note(each.plan, outcome)
    for url in sorted(changes):
        held[url].finish()
    return [_in_order(each, done) for each, done in zip(work, outcomes, strict=True)]


class _Change(NamedTuple):
    plan: PartitionPlan
    copy: CopyPlan


def _with(plan: PartitionPlan, copies: tuple[CopyPlan, ...]) -> PartitionPlan:
    return PartitionPlan(
        partition=plan.partition,
        topic_id=plan.topic_id,
        sources=plan.sources,
        copies=copies,
        sound=plan.sound,
        lost=plan.lost,
        high_watermark=plan.high_watermark,
        config=plan.config,
    )


class _Held:
    """A local directory that is locked. `begin` before its copies change, `finish` afterwards."""

    def __init__(self, path: str) -> None:
        self._files = LocalFileSystem()
        self._directory = LogDirectory(self._files, path)
        self.lock: Lock | None = None
        self._was_clean = False
        self._is_in_doubt = False
        self._cleaner: CleanerCheckpoint | None = None
        self._offsets: dict[str, dict[TopicPartition, int]] = {}

    def take(self, *, dry_run: bool) -> None:
        self.lock = lock_for_repair(self._directory, dry_run=dry_run)

    def settle_leftovers(self, choice: Choice) -> None:
        """Finish what a crash has left in the folders of partitions, as the next start would."""
        for partition in self._directory.folders().live:
            folder = self._directory.folder_of(partition)
            if choice.includes(partition) and has_unfinished_files(self._files.list_names(folder)):
                # The segments may lack indexes: the next start recovers them.
                self._is_in_doubt = True
                self._directory.take_clean_shutdown()
                settle_leftovers(self._files, folder)

    def begin(self, changes: Sequence[_Change]) -> list[CopyOutcome]:
        """Let the checkpoints say nothing that does not hold while these copies are changed, and make room for folders.

        Returns those whose folder could not be set aside.
        """
        self._cleaner = CleanerCheckpoint(self._directory)
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            self._offsets[name] = dict(self._directory.read_checkpoint(name))
        self._was_clean = self._directory.take_clean_shutdown()
        high_watermarks = self._offsets[HIGH_WATERMARK_CHECKPOINT]
        for plan, copy in changes:
            self._cleaner.lower(plan.partition, copy.first_changed)
            if copy.number is None:
                # There is no folder, or that of another topic: the entries are of a log that is not this one.
                for offsets in self._offsets.values():
                    offsets.pop(plan.partition, None)
            elif copy.diverges_at is not None and plan.partition in high_watermarks:
                # Once the copy is truncated, nothing shows that it had served other batches than the log.
                high_watermarks[plan.partition] = min(high_watermarks[plan.partition], copy.diverges_at)
        self._write()
        return self._make_room([change for change in changes if change.copy.number is None])

    def _make_room(self, changes: Sequence[_Change]) -> list[CopyOutcome]:
        failed: list[CopyOutcome] = []
        for plan, copy in changes:
            try:
                if copy.other_topic is not None:
                    aside = self._directory.path_of(set_aside_name(plan.partition, copy.other_topic))
                    self._files.rename(self._directory.folder_of(plan.partition), aside)
            except StorageError as error:
                failed.append(CopyOutcome(copy, str(error)))
                continue
            self._offsets[LOG_START_OFFSET_CHECKPOINT][plan.partition] = copy.start_offset
        if changes:
            self._files.sync_folder(self._directory.path)
            # Not before: the log of another topic may end below, and would be emptied by a start in between.
            self._write()
        return failed

    def target(self, partition: TopicPartition) -> TargetDirectory:
        """REQUIRES: `begin` was called."""
        log_start_offset = self._offsets[LOG_START_OFFSET_CHECKPOINT].get(partition, 0)
        return TargetDirectory(files=self._files, path=self._directory.path, log_start_offset=log_start_offset)

    def note(self, plan: PartitionPlan, outcome: CopyOutcome) -> None:
        self._is_in_doubt |= outcome.is_in_doubt
        if outcome.failure is not None:
            return
        copy = outcome.copy
        self._offsets[RECOVERY_POINT_CHECKPOINT][plan.partition] = copy.end_offset
        self._offsets[HIGH_WATERMARK_CHECKPOINT][plan.partition] = min(plan.high_watermark, copy.end_offset)
        if copy.cleaned_to is not None:
            assert self._cleaner is not None
            self._cleaner.put(plan.partition, min(copy.cleaned_to, copy.end_offset))

    def _write(self) -> None:
        for name, offsets in self._offsets.items():
            self._directory.write_checkpoint(name, offsets.copy)
        if self._cleaner is not None:
            self._cleaner.write()

    def finish(self) -> None:
        self._write()
        if self._was_clean and not self._is_in_doubt:
            self._directory.put_clean_shutdown()


@contextmanager
def _held(locations: Sequence[Location], *, dry_run: bool) -> Iterator[dict[str, _Held]]:
    """The local directories that may be changed, locked."""
    locked: list[_Held] = []
    held: dict[str, _Held] = {}
    try:
        for location in locations:
            path = location.url
            is_usable = not location.is_remote and os.path.isdir(path)
            if is_usable and (dry_run or os.access(path, os.W_OK)):
                directory = _Held(path)
                with lock_holder_named(path):
                    directory.take(dry_run=dry_run)
                locked.append(directory)
                if os.access(path, os.W_OK):
                    held[path] = directory
        yield held
    finally:
        for directory in locked:
            if directory.lock is not None:
                directory.lock.release()
