"""The latest state of a partition whose keys do not fit into one task's memory: keys are shuffled, records are not.

Each part of the log, and each file of the previous snapshot, is a source. First a task for each source finds the last
mark of each of its keys (digest and mark, see `keyed_offsets`). Spark groups them by key and keeps the largest,
spilling to disk if necessary. Then a task for each source that has records left writes them.

A source of the previous snapshot that has all its rows left is not touched. File names have the run and the source, so
a task that runs twice writes the same files.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions

from duralog.scanning.executor import Advance, ignore_progress
from duralog.scanning.keyed_offsets import KeyedChunk, Numbers, keys_of_log, live_offsets
from duralog.scanning.slices import Slice, slices_by_task
from duralog.schemas.payloads import count_left_out
from duralog.spark.executor import SparkExecutor, task_failure
from duralog.spark.jobs.key_shuffle import keys_frame, last_marks, mark_batches
from duralog.spark.jobs.snapshots.keyless_changes import last_truncate
from duralog.spark.jobs.snapshots.latest_rows import LatestRows
from duralog.spark.jobs.snapshots.partition_task import PartitionOutcome, PartitionTask
from duralog.spark.jobs.snapshots.task import check_complete, copied_path
from duralog.spark.lake.keyed_files import corrupt_of_file, count_of_file, expired_among, keys_of_file
from duralog.spark.lake.parquet_files import DataFile, ParquetFiles
from duralog.spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OUTCOME_SCHEMA = "outcome binary"


@dataclass(frozen=True, slots=True)
class _Source:
    """Slices of the log, or a file of the previous snapshot."""

    slices: tuple[Slice, ...] = ()
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What was written of a source."""

    source: int
    live_keys: int
    deleted_keys: int
    records_read: int
    keyless_records: int
    bad_records: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    unavailable_rows: int = 0
    corrupt_rows: int = 0
    expired_rows: int = 0
    added: list[DataFile] = field(default_factory=list)
    is_kept: bool = False
    """Whether it is a file that stays as it is."""


def snapshot_by_shuffle(spark: SparkSession, task: PartitionTask) -> PartitionOutcome:
    """As `task.snapshot_partition`, with the memory and the cores of all executors."""
    sources = _sources(task)
    if task.rows.unwrap is not None:
        # Every task must know it before the first one writes.
        parts = [replace(task, slices=source.slices) for source in sources if source.slices]
        found = SparkExecutor(spark).run(parts, _last_truncate, weight=lambda part: part.size_bytes, name="truncates")
        task = replace(task, truncated_offset=max(found, default=-1))
    return _outcome(task, sources, _shuffle(spark, task, sources))


def _last_truncate(task: PartitionTask, _: Advance = ignore_progress) -> int:
    return last_truncate(task)


def _sources(task: PartitionTask) -> list[_Source]:
    files = [_Source(file=path) for path in task.files]
    return [*files, *(_Source(slices=slices) for slices in slices_by_task(task.slices))]


def _shuffle(spark: SparkSession, task: PartitionTask, sources: list[_Source]) -> list[_Written]:
    def write(table: pa.Table) -> pa.Table:
        with plain_errors(), task.right.used():
            number = table.column("source")[0].as_py()
            written = _write(task, sources[number], number, table.column("mark").to_numpy())
            return pa.table({"outcome": [pickle.dumps(written)]})

    keys = keys_frame(spark, len(sources), lambda number: _keys_of(task, sources[number], number))
    latest = keys.groupBy("high", "low").agg(
        functions.max("mark").alias("mark"), functions.max_by("source", "mark").alias("source")
    )
    # With the number of parts given, Spark does not put several sources together into one task.
    parted = latest.repartition(len(sources), "source")
    try:
        rows = parted.groupBy("source").applyInArrow(write, _OUTCOME_SCHEMA).collect()
    except PySparkException as error:
        raise task_failure("snapshot", error) from error
    return [pickle.loads(row.outcome) for row in rows]


def _keys_of(task: PartitionTask, source: _Source, number: int) -> Iterator[pa.RecordBatch]:
    """The last mark of each key of the source, and at the end how many records there were."""
    counts = np.zeros(2, np.int64)

    def chunks() -> Iterator[KeyedChunk]:
        if source.file is not None:
            yield from keys_of_file(task.target, source.file, task.first_offset, task.rows.identity)
            return
        for chunk in keys_of_log(source.slices, task.rows.identity):
            counts[:] += (chunk.records, chunk.keyless)
            yield chunk

    yield from last_marks(number, chunks(), task.map_bytes)
    # As if they were keys: no digest is like these, and no mark of a record is negative.
    names = np.array([[number, name] for name in range(len(counts))], np.uint64)
    yield from mark_batches(number, names, -1 - counts)


def _write(task: PartitionTask, source: _Source, number: int, marks: Numbers) -> _Written:
    """Write what is left of a source."""
    # The two counts are the only marks below zero. Which is which: no more records are without a key than there are.
    keyless, records = sorted((-1 - marks[marks < 0]).tolist())
    marks = marks[marks >= 0]
    left = marks[(marks >> 1) > task.truncated_offset]
    wanted, expired = live_offsets(left), expired_among(left, task.first_offset)
    counts = {"source": number, "records_read": records, "keyless_records": keyless, "expired_rows": expired}
    if source.file is not None:
        total, found = count_of_file(task.target, source.file, wanted)
        check_complete(task.topic, task.partition, len(wanted) - found)
        if found == total:
            if task.rows.has_corrupt:
                counts["corrupt_rows"] = corrupt_of_file(task.target, source.file)
            if task.copies:
                task.target.copy(source.file, copied_path(task, source.file))
            return _Written(**counts, live_keys=found, deleted_keys=len(marks) - found - expired, is_kept=True)
    value = str(task.partition)
    stem = f"{task.stem}-{number:06d}"
    latest = LatestRows(task, wanted)
    with ParquetFiles(task.target, task.rows.schema, column=task.column, stem=stem, folder=task.folder) as files:
        for rows in latest.of_log(source.slices) if source.file is None else latest.of_file(source.file):
            files.write(value, rows)
        check_complete(task.topic, task.partition, len(wanted) - latest.records)
        return _Written(
            **counts,
            live_keys=latest.rows,
            deleted_keys=len(marks) - latest.rows - expired,
            bad_records=latest.bad,
            corrupt_rows=latest.corrupt,
            left_out=latest.left_out,
            unavailable_rows=latest.unavailable,
            added=files.finish(),
        )


def _outcome(task: PartitionTask, sources: list[_Source], written: list[_Written]) -> PartitionOutcome:
    kept = {found.source for found in written if found.is_kept}
    return PartitionOutcome(
        partition=task.partition,
        added=[file for found in written for file in found.added],
        removed=[source.file for number, source in enumerate(sources) if source.file and number not in kept],
        live_keys=sum(found.live_keys for found in written),
        deleted_keys=sum(found.deleted_keys for found in written),
        records_read=sum(found.records_read for found in written),
        keyless_records=sum(found.keyless_records for found in written),
        bad_records=sum(found.bad_records for found in written),
        left_out=count_left_out(found.left_out for found in written),
        unavailable_rows=sum(found.unavailable_rows for found in written),
        corrupt_rows=sum(found.corrupt_rows for found in written),
        expired_rows=sum(found.expired_rows for found in written),
    )
