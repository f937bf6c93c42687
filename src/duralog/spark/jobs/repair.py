"""`repair`: what `duralog repair` does, partitions in parallel.

The driver holds the directory's lock. Tasks verify it (`duralog.spark.jobs.verify`); partitions with errors are
repaired, each by one task, which borrows it (`duralog.storage.borrowed_partition`). The driver repairs the metadata
log, which is one small partition, and the checkpoints. Nothing is thrown away: what is taken out of a log goes to the
quarantine in its folder.

If a task or the driver dies, the directory does not count as cleanly closed, and the next start recovers it; the same
job can be run again.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial as with_first
from typing import TYPE_CHECKING

from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.topic_partition import TopicPartition
from duralog.reports.repair import RepairReport
from duralog.reports.verify import VerifyReport
from duralog.scanning.executor import Executor, OnProgress, one_by_one, run_in_groups
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.holding import HeldDirectory, check_shared_directory, hold
from duralog.spark.jobs.verify import verify
from duralog.storage.borrowed_partition import Loan, borrow_folder
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.disk.rehearsal import RehearsalFileSystem
from duralog.storage.repair.folder_changes import Action
from duralog.storage.repair.partition_repair import PartitionRepair, PartitionRepairer
from duralog.storage.repair.repair import TopicConfigs, left_of, lock_for_repair, repair_checkpoints, repairable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def repair(
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    restore: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> RepairReport:
    """Repair a directory. No other process may have it open. A dry run reports what would be done, and changes nothing.

    With `restore`, what is valid in quarantine is put back. Damage in the metadata log is only taken out if its topic
    is named.
    """
    began = time.monotonic()
    with _held(path, dry_run=dry_run) as held:
        # The absolute path: tasks and driver must name files in the same way.
        path = os.path.abspath(path)
        verified = verify(spark, path, topics=topics, partition=partition, on_progress=on_progress)
        work = _Work(
            path=path,
            restore=restore,
            dry_run=dry_run,
            may_cut_metadata=topics is not None and CLUSTER_METADATA in topics,
        )
        results = _repair_all(SparkExecutor(spark, on_progress), work, verified, held)
        repairs = [result.repaired for result in results]
        if held is not None and (not held.was_clean or any(result.is_in_doubt for result in results)):
            held.mark_in_doubt()
        fs = work.file_system()
        actions = [action for result in results for action in result.actions]
        actions += repair_checkpoints(fs, LogDirectory(fs, path), repairs)
    return RepairReport(
        path=path,
        dry_run=dry_run,
        repairs=repairs,
        actions=actions,
        left=left_of(verified.errors, repairs),
        seconds=time.monotonic() - began,
    )


@contextmanager
def _held(path: str, *, dry_run: bool) -> Iterator[HeldDirectory | None]:
    if not dry_run:
        with hold(path, with_metadata=False) as held:
            yield held
        return
    check_shared_directory(path)
    lock = lock_for_repair(LogDirectory(LocalFileSystem(), path), dry_run=True)
    try:
        yield None
    finally:
        if lock is not None:
            lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What holds for all partitions."""

    path: str
    restore: bool
    dry_run: bool
    may_cut_metadata: bool

    def file_system(self) -> FileSystem:
        return RehearsalFileSystem(LocalFileSystem()) if self.dry_run else LocalFileSystem()

    def repair(self, fs: FileSystem, directory: LogDirectory, item: _Item) -> _Result:
        repairer = PartitionRepairer(
            fs,
            directory,
            config_of=lambda _: item.config,
            restore=self.restore,
            dry_run=self.dry_run,
            may_cut_metadata=self.may_cut_metadata,
        )
        repaired = repairer.repair(item.report, item.partition)
        return _Result(repaired=repaired, actions=repairer.actions, is_in_doubt=repairer.is_in_doubt)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    partition: TopicPartition
    report: PartitionReport
    config: TopicConfig
    loan: Loan | None
    """None for a dry run, and for the metadata log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    repaired: PartitionRepair
    actions: Sequence[Action]
    """On the cleaner's checkpoint."""
    is_in_doubt: bool


def _repair_all(executor: Executor, work: _Work, verified: VerifyReport, held: HeldDirectory | None) -> list[_Result]:
    """In the order of the partitions."""
    configs = TopicConfigs(work.path)
    items: list[_Item] = []
    for report in verified.partitions:
        partition = repairable(report)
        if partition is not None:
            loan = None if held is None or partition not in held.partitions else held.lend(partition)
            items.append(_Item(partition=partition, report=report, config=configs.of(partition.topic), loan=loan))
    in_driver = [item for item in items if not work.dry_run and item.loan is None]
    in_tasks = [item for item in items if work.dry_run or item.loan is not None]
    done = [_repair_partition(work, item) for item in in_driver]
    done += run_in_groups(
        executor,
        in_tasks,
        one_by_one(with_first(_repair_partition, work)),
        size_bytes=lambda item: item.report.counts.size_bytes,
        name="repair",
    )
    places = {item.partition: place for place, item in enumerate(items)}
    return sorted(done, key=lambda result: places[result.repaired.partition])


def _repair_partition(work: _Work, item: _Item) -> _Result:
    """An error is part of the result: it does not stop the others."""
    try:
        return _repaired(work, item)
    except (DuralogError, OSError) as error:
        repaired = PartitionRepair(
            partition=item.partition,
            folder=item.report.folder,
            errors=item.report.errors,
            actions=(),
            end_offset=item.report.end_offset,
            restorable_batches=0,
            left=item.report.errors,
            failure=str(error),
        )
        return _Result(repaired=repaired, actions=(), is_in_doubt=True)


def _repaired(work: _Work, item: _Item) -> _Result:
    if item.loan is None:
        fs = work.file_system()
        with _without_log_lines():
            return work.repair(fs, LogDirectory(fs, work.path), item)
    with borrow_folder(item.loan) as folder, _without_log_lines():
        result = work.repair(folder.file_system, folder.directory, item)
        folder.is_in_order = folder.was_in_order and not result.is_in_doubt
        return result


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Recovery would log damage to the worker's standard error: the report has all of it."""
    logger = logging.getLogger("duralog")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
