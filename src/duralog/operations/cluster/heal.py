"""Heal the copies of a cluster's partitions: what one lacks, or has damaged, comes from another, byte for byte.

The directories are locked while their copies are compared and changed (`locked_directories`). Those in an object store,
and those that this process may not write to, are read only. Partitions are independent of each other; if one fails, the
others are healed. They are planned and healed on threads, or by the tasks of a Spark job (`heal_tasks`).

If the machine dies in the middle, run the heal again: it finds what is left. Checkpoints of copies that were complete
may then say less than they could: Kafka recovers or compacts more at its next start.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duralog.config.plurals import plural
from duralog.config.progress import OnProgress, ignore
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.cluster.executors import executor_of
from duralog.operations.cluster.explain import chosen_partitions
from duralog.operations.cluster.heal_tasks import Directories, HealWork, PlanWork, heal_in_task, seen_copies
from duralog.operations.cluster.locked_directories import Change, LockedDirectory, locked_directories
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.scanning.cluster.cluster import Cluster, open_cluster
from duralog.scanning.cluster.directories import find_directories
from duralog.scanning.cluster.heal_plan import CopyPlan, PartitionPlan, set_aside_name
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.scanning.cluster.healing_files import CopyOutcome
from duralog.scanning.cluster.problems import Problem, ProblemKind
from duralog.scanning.executor import Executor, one_by_one, run_in_groups


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
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[HealedPartition], None] = ignore_result,
) -> HealReport:
    """No process may have the directories open, not even for a dry run.

    On Spark, the driver has the locks, and lends them to tasks: all machines must see the directories under the same
    paths. If the machine of a task is lost, its copies are left for the next heal.

    `on_partition` is called with each partition at the end, by topic and number.
    """
    began = time.monotonic()
    locations, _ = find_directories(list(request.paths), request.storage_options)
    with locked_directories(locations, dry_run=request.dry_run) as held:
        executor = executor_of(workers, on_progress)
        is_elsewhere = isinstance(workers, OnSpark)
        if not request.dry_run:
            for directory in held.values():
                directory.settle_leftovers(request.choice)
        with open_cluster(list(request.paths), request.storage_options) as cluster:
            problems = list(cluster.problems)
            plans, unreadable = _plans(cluster, request, executor, is_elsewhere=is_elsewhere)
            problems += unreadable
            count = len(cluster.directories)
        work = [_allowed(plan, request, held) for plan in plans]
        if request.dry_run:
            outcomes = [_refused(each) for each in work]
        else:
            outcomes = _heal(work, held, executor, is_elsewhere=is_elsewhere)
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


def _plans(
    cluster: Cluster, request: HealRequest, executor: Executor, *, is_elsewhere: bool
) -> tuple[list[PartitionPlan], list[Problem]]:
    loaded = list(cluster.load(chosen_partitions(cluster, request.choice)))
    copies = [found for found in loaded if not isinstance(found, Problem)]
    problems = [found for found in loaded if isinstance(found, Problem)]
    if is_elsewhere:
        urls = tuple(directory.location.url for directory in cluster.directories)
        directories = Directories(urls=urls, storage_options=dict(request.storage_options))
        works = [PlanWork(partition=found.partition, seen=seen_copies(found)) for found in copies]
        plans = run_in_groups(
            executor, works, directories.plan, size_bytes=lambda work: work.size_bytes, name="compare"
        )
    else:
        plans = executor.run(
            copies,
            lambda found, _: plan_heal(cluster, found),
            name="compare",
            weight=lambda found: sum(copy.size_bytes for copy in found.copies),
        )
    return plans, problems


@dataclass(frozen=True, slots=True)
class _Work:
    """A plan, with the copies that may be healed only, and why the others may not."""

    plan: PartitionPlan
    refused: tuple[CopyOutcome, ...]
    allowed: tuple[CopyPlan, ...]


def _allowed(plan: PartitionPlan, request: HealRequest, held: Mapping[str, LockedDirectory]) -> _Work:
    refused: list[CopyOutcome] = []
    allowed: list[CopyPlan] = []
    for copy in plan.copies:
        reason = _refusal(copy, request, held)
        if reason is None:
            allowed.append(copy)
        else:
            refused.append(CopyOutcome(copy, reason))
    return _Work(plan, tuple(refused), tuple(allowed))


def _refusal(copy: CopyPlan, request: HealRequest, held: Mapping[str, LockedDirectory]) -> str | None:
    if copy.location.is_remote:
        return "a directory in an object store can be a source, and is not changed: copy it to a disk and heal it there"
    if copy.location.url not in held:
        return "this process may not write to the directory: it was only read"
    if copy.conflicts:
        (first, _), (_, last) = copy.conflicts[0], copy.conflicts[-1]
        return (
            "no copy of the compacted part is whole, and their cleaners have removed other records: keys that were"
            f" deleted would come back, between offsets {first} and {last}. Give the directories of a backup, too; or"
            " copy what is left with duralog cluster restore --accept-loss"
        )
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
    by_directory = {outcome.copy.location: outcome for outcome in (*work.refused, *done)}
    return [by_directory[copy.location] for copy in work.plan.copies]


def _heal(
    work: Sequence[_Work], held: Mapping[str, LockedDirectory], executor: Executor, *, is_elsewhere: bool
) -> list[list[CopyOutcome]]:
    changes: dict[str, list[Change]] = defaultdict(list)
    for each in work:
        for copy in each.allowed:
            changes[copy.location.url].append(Change(each.plan, copy))
    done: dict[TopicPartition, list[CopyOutcome]] = defaultdict(list)
    job = uuid.uuid4().hex
    for url, of_directory in sorted(changes.items()):
        for partition, failed in held[url].begin(of_directory):
            done[partition].append(failed)
        if is_elsewhere:
            held[url].lend(job, [change.plan.partition for change in of_directory])
    works = [healed for each in work if (healed := _heal_work(each, done[each.plan.partition], held)) is not None]
    outcomes = run_in_groups(
        executor, works, one_by_one(heal_in_task), size_bytes=lambda each: each.size_bytes, name="heal"
    )
    for healed, found in zip(works, outcomes, strict=True):
        done[healed.plan.partition] += found
    for url in sorted(changes):
        held[url].take_back()
    for each in work:
        for outcome in done[each.plan.partition]:
            held[outcome.copy.location.url].note(each.plan, outcome)
    for url in sorted(changes):
        held[url].finish()
    return [_in_order(each, done[each.plan.partition]) for each in work]


def _heal_work(work: _Work, failed: Sequence[CopyOutcome], held: Mapping[str, LockedDirectory]) -> HealWork | None:
    gone = {outcome.copy.location for outcome in failed}
    copies = tuple(copy for copy in work.allowed if copy.location not in gone)
    if not copies:
        return None
    targets = {copy.location.url: held[copy.location.url].target(work.plan.partition) for copy in copies}
    return HealWork(plan=replace(work.plan, copies=copies), targets=targets)
