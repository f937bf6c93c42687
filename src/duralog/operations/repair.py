"""Repair a log directory: rebuild indexes and snapshots, move damaged bytes to quarantine, put valid ones back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from duralog.config.progress import Counted, OnProgress, ignore
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.lock_holder import lock_holder_named
from duralog.operations.opened_store import check_log_directory
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers, ignore_result
from duralog.reports.repair import RepairReport
from duralog.storage.repair.partition_repair import PartitionRepair
from duralog.storage.repair.repair import Repair


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    path: str
    """Of the log directory."""
    choice: Choice = EVERYTHING
    """Damage in the metadata log is only removed if its topic is named."""
    restore: bool = False
    """Also put back what is valid in quarantine."""
    dry_run: bool = False


def repair(
    request: RepairRequest,
    workers: Workers = TWO_THREADS,
    *,
    on_progress: OnProgress = ignore,
    on_partition: Callable[[PartitionRepair], None] = ignore_result,
) -> RepairReport:
    """No one may have the directory open, not even for a dry run.

    `on_partition` is called with each result: on threads when the partition is done, on Spark at the end.
    """
    choice = request.choice
    if isinstance(workers, OnSpark):
        from duralog.spark.jobs.repair import repair as run

        report = run(
            workers.session,
            request.path,
            topics=choice.topics,
            partition=choice.partition,
            restore=request.restore,
            dry_run=request.dry_run,
            on_progress=on_progress,
        )
        for repaired in report.repairs:
            on_partition(repaired)
        return report
    began = time.monotonic()
    check_log_directory(request.path)
    with lock_holder_named(request.path):
        work = Repair(
            request.path,
            topics=choice.topics,
            partition=choice.partition,
            restore=request.restore,
            dry_run=request.dry_run,
        )
    size_bytes = work.size_bytes
    done: list[PartitionRepair] = []
    for repaired in work.run(lambda read, name: on_progress(Counted(label=name, done=read, total=size_bytes))):
        done.append(repaired)
        on_partition(repaired)
    return RepairReport(
        path=request.path,
        dry_run=work.dry_run,
        repairs=done,
        actions=work.actions,
        left=work.left,
        seconds=time.monotonic() - began,
    )
