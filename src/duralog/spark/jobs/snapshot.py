"""The latest state of every key of a topic, as a table: what the topic says now, or said at some point.

    snapshot(spark, "data", "lake", topics=["users"], format="delta")

Each topic is one table, `<target>/<topic>`, with the columns of Spark's Kafka connector, partitioned by the
partition of the topic. Of each key of a partition there is one row, its last record; a key whose last record is a
tombstone has none. Records without a key are left out, and counted.

With `decode`, keys and values are columns of their schemas' types. With `unwrap`, the table is the one of the database
whose change events the topic has, as Debezium writes them: its columns, and where each row comes from in `kafka_*`
(`lake.change_rows`). Only the last record of each key is decoded.

Plain Parquet has no commits, so each run writes a new folder, `<target>/<topic>/snapshot-<run>`, which the
report names. Delta and Iceberg tables keep their address; files of former snapshots stay until the table is vacuumed.

Of the directories of a cluster, each partition is read from the copy that consumers were served, up to the high
watermark, and damage in it is read through (`snapshots.sound_copies`).

**As of when.** A snapshot is of a prefix of each partition: the records before an offset. `as_of_offsets` gives the
offsets. `as_of_ms` means the first offset whose record has that timestamp or a later one, as Kafka's `offsetsForTimes`
finds it: timestamps need not rise, so a record with an earlier one after that offset is left out. Without either, it
is the last stable offset. What the log has lost by compaction or retention before cannot be brought back.

**From the last snapshot.** A run reads only the offsets since the last one and merges them with its rows; the result is
what a full run gives. If that is not certain, it makes a full one, and the report has the reason: the point lies before
the last one, the columns have changed, or tombstones may have been compacted away since, by the configs in the cluster
metadata or, of several directories, by the offsets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from duralog.columnar.schema import PARTITION
from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, SchemaError, StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.directories import Paths
from duralog.scanning.executor import OnProgress
from duralog.scanning.keyed_offsets import check_map_bytes
from duralog.scanning.logs import Logs, LogSet
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.topic_choice import partitions_by_topic
from duralog.schemas.decode_options import Decode
from duralog.schemas.payloads import count_left_out
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.copy_notes import (
    copy_problems,
    missing_partitions,
    missing_topics,
    planned_from_others,
    planned_losses,
)
from duralog.spark.jobs.snapshots.draft import Draft, draft_of, with_sound_copies
from duralog.spark.jobs.snapshots.partition_task import PartitionOutcome, PartitionTask
from duralog.spark.jobs.snapshots.plan import Basis, NewRecords, SnapshotRequest, partition_tasks
from duralog.spark.jobs.snapshots.report import SnapshotReport, SnapshotTable
from duralog.spark.jobs.snapshots.shuffle import snapshot_by_shuffle
from duralog.spark.jobs.snapshots.task import snapshot_partition
from duralog.spark.lake.change_rows import Unwrap
from duralog.spark.lake.columns import table_schema
from duralog.spark.lake.log_ends import DETAIL
from duralog.spark.lake.opened_table import open_table
from duralog.spark.lake.parquet_table import ParquetVersions
from duralog.spark.lake.row_planning import PlannedRows, RowRequest
from duralog.spark.lake.table_state import TableFormat, TableState
from duralog.spark.lake.tables import LakeTable, TableSpec, check_apart, split_options
from duralog.spark.lake.targets import PART_SUFFIX, LakeTarget
from duralog.spark.lake.writing_right import only_writer
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.isolation import Isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SnapshotReport", "SnapshotTable", "snapshot"]

_JOB = "snapshot"
DEFAULT_MAP_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicRun:
    """The snapshot of one topic, from opening its table to the report."""

    table: LakeTable
    before: TableState
    after: TableState
    """But for the counts of keys."""
    why_full: str | None
    ranges: Mapping[TopicPartition, OffsetRange]
    tasks: Sequence[PartitionTask]
    replaced: Sequence[str]
    """Files of a snapshot that a full one replaces."""
    due_ms: int | None
    """From then on, tombstones that an incremental run needs may be gone."""
    planned: PlannedRows
    findings: tuple[str, ...]
    """What is wrong with copies, and what the log does not say of the database any more, in sentences for people."""
    healed: tuple[str, ...]

    def commit(self, outcomes: Sequence[PartitionOutcome], shuffled: Sequence[int]) -> SnapshotTable:
        if self.due_ms is not None and wall_clock_ms() >= self.due_ms:
            raise StorageError(
                f"{self.after.topic}: while it was read, tombstones after the last snapshot may have been compacted"
                " away: run it again, which makes a full one"
            )
        added = [file for outcome in outcomes for file in outcome.added]
        removed = [*self.replaced, *(path for outcome in outcomes for path in outcome.removed)]
        counts = {str(outcome.partition): outcome.live_keys for outcome in outcomes}
        corrupt = {str(outcome.partition): outcome.corrupt_rows for outcome in outcomes}
        if self.why_full is None:
            counts = {**self.before.details["live_keys"], **counts}
            corrupt = {**self.before.details.get("corrupt_rows", {}), **corrupt}
        if self.tasks or self.why_full is not None:
            details = {**self.after.details, "live_keys": counts, "corrupt_rows": corrupt}
            after = replace(self.after, details=details)
            self.table.commit(after, added, removed)
        return SnapshotTable(
            topic=self.after.topic,
            path=self.table.path,
            format=str(self.after.table_format),
            live_keys=sum(counts.values()),
            deleted_keys=sum(outcome.deleted_keys for outcome in outcomes),
            keyless_records=sum(outcome.keyless_records for outcome in outcomes),
            records_read=sum(outcome.records_read for outcome in outcomes),
            read_bytes=sum(task.size_bytes for task in self.tasks),
            files=len(added),
            written_bytes=sum(file.size_bytes for file in added),
            removed_files=len(removed),
            is_incremental=self.why_full is None,
            why_full=self.why_full,
            start_offsets={partition.partition: found.start_offset for partition, found in self.ranges.items()},
            end_offsets=dict(self.after.next_offsets),
            shuffled_partitions=tuple(shuffled),
            bad_records=sum(outcome.bad_records for outcome in outcomes),
            corrupt_rows=sum(corrupt.values()),
            expired_rows=sum(outcome.expired_rows for outcome in outcomes),
            left_out_fields=count_left_out(outcome.left_out for outcome in outcomes),
            unavailable_rows=sum(outcome.unavailable_rows for outcome in outcomes),
            findings=(*self.planned.findings, *self.findings),
            column_changes=self.planned.evolution.changes(),
            healed=self.healed,
        )


def snapshot(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: Paths,
    target: str,
    *,
    topics: Sequence[str] | None = None,
    format: str = TableFormat.PARQUET,
    as_of_ms: int | None = None,
    as_of_offsets: Mapping[str, Mapping[int, int]] | None = None,
    isolation: str = Isolation.READ_COMMITTED,
    full: bool = False,
    headers: bool = False,
    map_bytes: int = DEFAULT_MAP_BYTES,
    max_slice_bytes: int = 128 << 20,
    storage_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    config: BrokerConfig | None = None,
    decode: str | Mapping[str, Any] | Decode | None = None,
    unwrap: str | None = None,
    columns: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> SnapshotReport:
    """Bring the tables of the topics to their latest state, or to that of an earlier point.

    A list of directories, a glob or a manifest is a cluster: the state is that of what consumers were served. Which
    directories are given may change from run to run.

    `as_of_offsets` has the offsets by topic and partition, each the first one that does not count; a partition that is
    not named is taken to its end. `full` starts from nothing instead of the last snapshot. `map_bytes` is the memory
    that a task has for keys, about 26 bytes each; a partition with more of them is shuffled. `config` is what the
    broker's `server.properties` sets: with the topic's own configs, it says how long tombstones stay.

    `decode` is the format of the values, as `auto` or `avro`, or a mapping of the options of typed payloads
    (`duralog.schemas.decode_options`). `unwrap="debezium"` makes change events the table of the database. `columns` are
    the fields of decoded keys and values that are wanted, as `value.customer.name`.
    """
    began = time.perf_counter()
    if as_of_ms is not None and as_of_offsets:
        raise InvalidConfig("a snapshot is as of a time or as of offsets: give one of them")
    check_map_bytes("map_bytes", map_bytes)
    request = SnapshotRequest(
        format=TableFormat(format),
        isolation=Isolation(isolation),
        as_of_ms=as_of_ms,
        as_of_offsets=as_of_offsets or {},
        full=full,
        rows=RowRequest.of(decode, unwrap, Unwrap.STATE, headers=headers, columns=columns),
        map_bytes=map_bytes,
        max_slice_bytes=max_slice_bytes,
    )
    options, catalog = split_options(target_options)
    with ExitStack() as stack:
        logs = stack.enter_context(LogSet.of(path, storage_options).open(config))
        chosen = partitions_by_topic(logs, topics, schemas_topic=request.rows.schemas_topic)
        for topic in request.as_of_offsets:
            if topic not in chosen:
                raise InvalidConfig(f"there are offsets for topic {topic}, of which no snapshot is taken")
        drafts = []
        for topic, partitions in chosen.items():
            folder = LakeTarget.of(target, options).child(topic)
            spec = TableSpec(
                job=_JOB,
                topic=topic,
                target=folder,
                schema=table_schema(headers=headers),
                partition_column=request.rows.name(PARTITION),
                catalog=catalog,
                is_replaced=True,
            )
            check_apart(folder, logs.locations)
            right = stack.enter_context(only_writer(folder, _JOB))
            draft = draft_of(logs, open_table(request.format, spec), right, request, partitions, wall_clock_ms())
            if draft is not None:
                drafts.append(draft)
            elif topics is not None:
                raise SchemaError(f"topic {topic} has no records, so the columns of its table are not known yet")
        if not drafts:
            raise SchemaError(f"{logs.path}: no topic has records, so the columns of the tables are not known yet")
        runs = [
            _begin(logs, draft, request) for draft in with_sound_copies(logs, drafts, request, SparkExecutor(spark))
        ]
        tables = _run(spark, runs, on_progress)
        problems = (*map(str, logs.problems), *missing_topics(logs, topics))
    return SnapshotReport(tables=tables, seconds=time.perf_counter() - began, problems=problems)


def _run(spark: SparkSession, runs: Sequence[_TopicRun], on_progress: OnProgress | None) -> tuple[SnapshotTable, ...]:
    tasks = [task for run in runs for task in run.tasks]
    outcomes = SparkExecutor(spark, on_progress).run(
        tasks,
        snapshot_partition,
        weight=lambda task: task.size_bytes,
        name=_JOB,
        writes=True,
    )
    by_task = dict(zip(map(id, tasks), outcomes, strict=True))
    tables = []
    for run in runs:
        shuffled = [task.partition for task in run.tasks if by_task[id(task)].is_too_large]
        done = [
            snapshot_by_shuffle(spark, task) if by_task[id(task)].is_too_large else by_task[id(task)]
            for task in run.tasks
        ]
        tables.append(run.commit(done, shuffled))
    return tuple(tables)


def _begin(logs: Logs, draft: Draft, request: SnapshotRequest) -> _TopicRun:
    """Make the table ready for its tasks."""
    table, before, is_full = draft.table, draft.before, draft.why_full is not None
    table.evolve(draft.rows.evolution, is_rewritten=is_full)
    table.begin(draft.nothing)
    _remove_leftovers(table, before)
    old_files = table.files()
    after = replace(
        draft.nothing,
        next_offsets={partition.partition: end for partition, end in draft.ends.items()},
        run=before.run + 1,
        details={**draft.nothing.details, **draft.rows.details, DETAIL: draft.log_ends},
    )
    copies = draft.copies
    return _TopicRun(
        table=table,
        before=before,
        after=after,
        why_full=draft.why_full,
        ranges=draft.ranges,
        tasks=partition_tasks(
            table,
            NewRecords(draft.ranges, draft.planned.slices if copies is None else copies.slices),
            Basis(draft.nothing) if is_full else Basis(before, old_files),
            map_bytes=request.map_bytes,
            rows=draft.rows.rows,
            right=draft.right,
            after=after,
        ),
        replaced=old_files if is_full else (),
        due_ms=None if is_full else draft.due_ms,
        planned=draft.rows,
        findings=(
            *copy_problems(draft.planned),
            *missing_partitions(logs, after.topic),
            *(f"{after.topic}: {loss}" for loss in planned_losses(draft.planned, draft.ranges)),
            *(() if copies is None else (f"{after.topic}: {loss}" for loss in copies.missing)),
            *(() if request.rows.unwrap is None else _gone(after)),
        ),
        healed=(*planned_from_others(draft.planned), *(() if copies is None else copies.healed)),
    )


def _gone(after: TableState) -> Iterator[str]:
    for number, first in after.details["first_offsets"].items():
        if first > 0:
            yield (
                f"{after.topic}: partition {number} begins at offset {first}: rows of the database"
                " that have not changed since are not in the table. Let Debezium take a snapshot, and keep the topic"
                " with cleanup.policy=compact"
            )


def _remove_leftovers(table: LakeTable, before: TableState) -> None:
    """What a run that died has left. The files of a run have its number in their names."""
    target, live = table.spec.target, set(table.files())
    is_versioned = isinstance(table, ParquetVersions)
    stale = []
    for file in target.files(table.data_folder.rstrip("/")):
        name = file.path.rpartition("/")[2]
        is_ours = name.startswith(f"part-{before.run + 1:06d}-") or is_versioned
        if (is_ours and file.path not in live) or (name.startswith(".part-") and name.endswith(PART_SUFFIX)):
            stale.append(file.path)
    target.delete(stale)
