"""What the tasks of a heal do, on threads or on Spark: plan partitions, and heal the copies of one.

A plan names ranges of files. So nothing but the heal itself may change these, and a partition is healed once: if the
machine of a task is lost, what it has changed is not known, and a second attempt changes nothing. The next heal plans
again, and finds what is left.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from duralog.errors import StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.cluster import Copies, open_cluster
from duralog.scanning.cluster.heal_plan import CopyPlan, PartitionPlan
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.scanning.cluster.healing_files import CopyOutcome, TargetDirectory, heal_partition
from duralog.scanning.executor import Advance
from duralog.scanning.locations import Location
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem, raise_open_file_limit
from duralog.storage.disk.lent_lock import BorrowedLock, SlotState, borrowed


@dataclass(frozen=True, slots=True)
class SeenCopy:
    """What a process finds of a copy: all processes must find the same."""

    url: str
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWork:
    """A partition that a task plans in another process."""

    partition: TopicPartition
    seen: tuple[SeenCopy, ...]
    """By the process that has the locks."""

    @property
    def size_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """Those of the cluster, as another process opens them."""

    urls: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False)
    """May hold secrets, so they are not shown."""

    def plan(self, works: Sequence[PlanWork], advance: Advance) -> list[PartitionPlan]:
        plans: list[PartitionPlan] = []
        with open_cluster(list(self.urls), self.storage_options) as cluster:
            for work in works:
                copies = cluster.copies(work.partition)
                _check_same(work, seen_copies(copies))
                plans.append(plan_heal(cluster, copies))
                advance(work.size_bytes)
        return plans


def seen_copies(copies: Copies) -> tuple[SeenCopy, ...]:
    return tuple(
        SeenCopy(copy.url, copy.state.start_offset, copy.state.end_offset, copy.size_bytes) for copy in copies.copies
    )


def _check_same(work: PlanWork, found: tuple[SeenCopy, ...]) -> None:
    if found != work.seen:
        raise StorageError(
            f"{work.partition}: {platform.node()} does not see the files that the driver sees: expected"
            f" {_listed(work.seen)}, found {_listed(found)}: all machines need the directories at the same paths, on"
            " disks that they share"
        )


def _listed(copies: Sequence[SeenCopy]) -> str:
    return ", ".join(
        f"offsets {copy.start_offset} to {copy.end_offset} in {copy.size_bytes} bytes of {copy.url}" for copy in copies
    )


@dataclass(frozen=True, slots=True)
class Loan:
    """What lets a task of a job change a partition of a directory (`duralog.storage.disk.lent_lock`)."""

    lock_path: str
    job: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A directory in which a copy of the partition is to be changed. REQUIRES: see `TargetDirectory`."""

    path: str
    log_start_offset: int
    loan: Loan | None
    """None in the process that has the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealWork:
    plan: PartitionPlan
    """With the copies that are to be changed."""
    targets: Mapping[str, Target]
    """By the URL of the directory."""

    @property
    def size_bytes(self) -> int:
        return sum(copy.written_bytes for copy in self.plan.copies)


def heal_in_task(work: HealWork) -> list[CopyOutcome]:
    raise_open_file_limit()
    with ExitStack() as loans:
        locks = {
            url: loans.enter_context(borrowed(target.loan.lock_path, target.loan.job, target.loan.slot))
            for url, target in sorted(work.targets.items())
            if target.loan is not None
        }
        if any(lock.state is not SlotState.AS_FOUND for lock in locks.values()):
            return [_of_another_attempt(copy, locks[copy.location.url]) for copy in work.plan.copies]
        for lock in locks.values():
            lock.put_state(SlotState.BORROWED)
        outcomes = _healed(work)
        for outcome in outcomes:
            if outcome.failure is None and locks:
                locks[outcome.copy.location.url].put_state(SlotState.RETURNED)
        return outcomes


def _healed(work: HealWork) -> list[CopyOutcome]:
    files = LocalFileSystem()
    targets: dict[Location, TargetDirectory] = {}
    for copy in work.plan.copies:
        target = work.targets[copy.location.url]
        targets[copy.location] = TargetDirectory(
            files=files, path=target.path, log_start_offset=target.log_start_offset
        )
    return heal_partition(work.plan, targets, clock=wall_clock_ms)


def _of_another_attempt(copy: CopyPlan, lock: BorrowedLock) -> CopyOutcome:
    if lock.state is SlotState.RETURNED:
        return CopyOutcome(copy)
    return CopyOutcome(copy, "a task was lost while it healed this copy: run heal again", is_in_doubt=True)
