"""`reindex`: the indexes of a directory (offsets, times, transactions) built from its logs again, in parallel.

For indexes that are missing, as in a copy of the logs alone, or in doubt. They are what Kafka builds when it recovers a
segment. A task reads its partition's logs twice: first it checks all of them, since an index of a damaged log would
leave out what comes after the damage; then it builds the indexes. No log is changed. A partition with a damaged log is
skipped: that is for `repair`. A failed partition does not stop the others.

If a task dies, indexes are missing: the next process that opens the partition builds them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duralog.errors import DuralogError
from duralog.format.filenames import FileKind, FileState, PartitionFolder, parse_segment_file
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.executor import OnProgress, one_by_one, run_in_groups
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.chosen_partitions import choose_partitions, log_bytes
from duralog.spark.jobs.holding import hold
from duralog.storage.borrowed_partition import Loan, borrow_folder
from duralog.storage.checks.chain import CheckOptions
from duralog.storage.repair.folder_changes import Action
from duralog.storage.repair.partition_repair import PartitionRepairer, check_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_SCHEMA = (
    "topic string, partition int, segments bigint, bytes bigint, changed bigint, failure string, seconds double"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReindex:
    partition: TopicPartition
    segments: int
    """Whose indexes were built."""
    size_bytes: int
    """Of their logs."""
    actions: Sequence[Action]
    """Files that have changed."""
    failure: str | None
    """Why nothing was done."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "segments": self.segments,
            "bytes": self.size_bytes,
            "actions": [action.to_dict() for action in self.actions],
            "failure": self.failure,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexReport:
    path: str
    partitions: Sequence[PartitionReindex]
    seconds: float

    @property
    def is_done(self) -> bool:
        return all(found.failure is None for found in self.partitions)

    def summary(self) -> dict[str, Any]:
        return {
            "partitions": len(self.partitions),
            "segments": sum(found.segments for found in self.partitions),
            "bytes": sum(found.size_bytes for found in self.partitions),
            "changed": sum(len(found.actions) for found in self.partitions),
            "failures": sum(found.failure is not None for found in self.partitions),
            "seconds": round(self.seconds, 3),
        }

    def to_dict(self) -> dict[str, Any]:
        return {"path": self.path, **self.summary(), "per_partition": [found.to_dict() for found in self.partitions]}

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition."""
        rows = [
            (
                *(found.partition.topic, found.partition.partition, found.segments, found.size_bytes),
                *(len(found.actions), found.failure, found.seconds),
            )
            for found in self.partitions
        ]
        return spark.createDataFrame(rows, PARTITIONS_SCHEMA)


def reindex(
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    on_progress: OnProgress | None = None,
) -> ReindexReport:
    """Build the indexes of a directory again. No other process may have it open."""
    began = time.monotonic()
    with hold(path, with_metadata=False) as held:
        chosen = choose_partitions(held.partitions, topics, partition, path)
        found = run_in_groups(
            SparkExecutor(spark, on_progress),
            [held.lend(partition) for partition in chosen],
            one_by_one(_reindex_partition),
            size_bytes=lambda loan: log_bytes(held.directory.folder_of(loan.partition)),
            name="reindex",
        )
    return ReindexReport(path=path, partitions=found, seconds=time.monotonic() - began)


def _reindex_partition(loan: Loan) -> PartitionReindex:
    began = time.monotonic()
    try:
        return _reindexed(loan, began)
    except (DuralogError, OSError) as error:
        return PartitionReindex(
            partition=loan.partition,
            segments=0,
            size_bytes=0,
            actions=(),
            failure=str(error),
            seconds=time.monotonic() - began,
        )


def _reindexed(loan: Loan, began: float) -> PartitionReindex:
    config = loan.topic_config
    with borrow_folder(loan) as folder:
        report = check_partition(
            folder.path, PartitionFolder(*loan.partition), CheckOptions(interval_bytes=config.index_interval_bytes)
        )
        repairer = PartitionRepairer(folder.file_system, folder.directory, config_of=lambda _: config)
        done = repairer.reindex(report, loan.partition)
        folder.is_in_order = folder.was_in_order and not repairer.is_in_doubt
        logs = [file for file in map(parse_segment_file, os.listdir(folder.path)) if file is not None]
    return PartitionReindex(
        partition=loan.partition,
        segments=0
        if done.failure is not None
        else sum(file.kind is FileKind.LOG and file.state is FileState.LIVE for file in logs),
        size_bytes=report.counts.size_bytes,
        actions=done.actions,
        failure=done.failure,
        seconds=time.monotonic() - began,
    )
