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

**As of when.** A snapshot is of a prefix of each partition: the records before an offset. `as_of_offsets` gives the
offsets. `as_of_ms` means the first offset whose record has that timestamp or a later one, as Kafka's `offsetsForTimes`
finds it: timestamps need not rise, so a record with an earlier one after that offset is left out. Without either, it
is the last stable offset. What the log has lost by compaction or retention before cannot be brought back.

**From the last snapshot.** A run reads only the offsets since the last one and merges them with its rows; the result is
what a full run gives. If that is not certain, it makes a full one, and the report has the reason: the point lies before
the last one, the columns have changed, or tombstones may have been compacted away since, by the configs in the cluster
metadata.
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
from duralog.scanning.executor import OnProgress
from duralog.scanning.keyed_offsets import check_map_bytes
from duralog.scanning.locations import location_of, open_store
from duralog.scanning.offset_ranges import OffsetRange, Offsets, Timestamps, resolve
from duralog.scanning.topic_choice import partitions_by_topic
from duralog.schemas.decode_options import Decode
from duralog.schemas.payloads import count_left_out
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.snapshots.basis import tombstones_until_ms, why_not_as_planned, why_not_from
from duralog.spark.jobs.snapshots.partition_task import PartitionOutcome, PartitionTask
from duralog.spark.jobs.snapshots.plan import Basis, SnapshotRequest, partition_tasks
from duralog.spark.jobs.snapshots.report import SnapshotReport, SnapshotTable
from duralog.spark.jobs.snapshots.shuffle import snapshot_by_shuffle
from duralog.spark.jobs.snapshots.task import snapshot_partition
from duralog.spark.lake.change_rows import Unwrap
from duralog.spark.lake.columns import table_schema
from duralog.spark.lake.log_ends import DETAIL, check_ends, remember_ends
from duralog.spark.lake.parquet_table import ParquetVersions
from duralog.spark.lake.row_planning import PlannedRows, RowRequest, plan_rows
from duralog.spark.lake.table_state import TableFormat, TableState
from duralog.spark.lake.tables import LakeTable, TableSpec, check_apart, open_table, split_options
from duralog.spark.lake.targets import PART_SUFFIX, LakeTarget
from duralog.spark.lake.writing_right import WritingRight, only_writer
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.time_lookup import EARLIEST, LATEST
from duralog.storage.store import Store

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
    gone: tuple[str, ...]
    """What the log does not say of the database any more, in sentences for people."""

    def commit(self, outcomes: Sequence[PartitionOutcome], shuffled: Sequence[int]) -> SnapshotTable:
        if self.due_ms is not None and wall_clock_ms() >= self.due_ms:
            raise StorageError(
                f"{self.after.topic}: while it was read, tombstones after the last snapshot may have been compacted"
                " away: run it again, which makes a full one"
            )
        added = [file for outcome in outcomes for file in outcome.added]
        removed = [*self.replaced, *(path for outcome in outcomes for path in outcome.removed)]
        counts = {str(outcome.partition): outcome.live_keys for outcome in outcomes}
        if self.why_full is None:
            counts = {**self.before.details["live_keys"], **counts}
        if self.tasks or self.why_full is not None:
            after = replace(self.after, details={**self.after.details, "live_keys": counts})
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
            left_out_fields=count_left_out(outcome.left_out for outcome in outcomes),
            unavailable_rows=sum(outcome.unavailable_rows for outcome in outcomes),
            findings=(*self.planned.findings, *self.gone),
            column_changes=self.planned.evolution.changes(),
        )


def snapshot(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: str,
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
    on_progress: OnProgress | None = None,
) -> SnapshotReport:
    """Bring the tables of the topics to their latest state, or to that of an earlier point.

    `as_of_offsets` has the offsets by topic and partition, each the first one that does not count; a partition that is
    not named is taken to its end. `full` starts from nothing instead of the last snapshot. `map_bytes` is the memory
    that a task has for keys, about 26 bytes each; a partition with more of them is shuffled. `config` is what the
    broker's `server.properties` sets: with the topic's own configs, it says how long tombstones stay.

    `decode` is the format of the values, as `auto` or `avro`, or a mapping of the options of typed payloads
    (`duralog.schemas.decode_options`). `unwrap="debezium"` makes change events the table of the database.
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
        rows=RowRequest.of(decode, unwrap, Unwrap.STATE, headers=headers),
        map_bytes=map_bytes,
        max_slice_bytes=max_slice_bytes,
    )
    options, catalog = split_options(target_options)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(path, storage_options, config))
        chosen = partitions_by_topic(store, topics)
        for topic in request.as_of_offsets:
            if topic not in chosen:
                raise InvalidConfig(f"there are offsets for topic {topic}, of which no snapshot is taken")
        runs = []
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
            check_apart(folder, location_of(store))
            right = stack.enter_context(only_writer(folder, _JOB))
            run = _prepare(store, open_table(request.format, spec), right, request, partitions)
            if run is not None:
                runs.append(run)
            elif topics is not None:
                raise SchemaError(f"topic {topic} has no records, so the columns of its table are not known yet")
        if not runs:
            raise SchemaError(f"{path}: no topic has records, so the columns of the tables are not known yet")
        return _run(spark, runs, on_progress, began)


def _run(
    spark: SparkSession, runs: Sequence[_TopicRun], on_progress: OnProgress | None, began: float
) -> SnapshotReport:
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
    return SnapshotReport(tables=tuple(tables), seconds=time.perf_counter() - began)


def _prepare(
    store: Store, table: LakeTable, right: WritingRight, request: SnapshotRequest, partitions: list[TopicPartition]
) -> _TopicRun | None:
    """None if nothing is known of the table's columns."""
    spec = table.spec
    read_ms = wall_clock_ms()
    nothing = TableState(
        job=_JOB,
        topic=spec.topic,
        topic_id=store.topic_id(spec.topic),
        table_format=request.format,
        isolation=str(request.isolation),
        headers=request.rows.headers,
        next_offsets={},
        run=0,
        details={
            "live_keys": {},
            "read_ms": read_ms,
            "is_latest": request.is_latest,
            "first_offsets": {str(found.partition): store.partition(*found).start_offset for found in partitions},
        },
    )
    before = table.state or nothing
    before.check(nothing, spec.where)
    if not request.full:
        check_ends(
            store,
            before,
            partitions,
            where=spec.where,
            taken="is in the last snapshot up to",
            advice="Take a full one, or give another target",
        )
    ends = _ends(store, request, partitions)
    due_ms = tombstones_until_ms(store, before)
    why_full = (
        "a full one was asked for" if request.full else why_not_from(before, request.isolation, ends, read_ms, due_ms)
    )
    starts = _starts(store, before if why_full is None else nothing, ends)
    planned = plan_rows(store, starts, table.state, request.rows, isolation=request.isolation, where=spec.where)
    if planned is None:
        return None
    if why_full is None and (why_full := why_not_as_planned(before, planned)) is not None:
        starts = _starts(store, nothing, ends)
    table.evolve(planned.evolution, is_rewritten=why_full is not None)
    table.begin(nothing)
    _remove_leftovers(table, before)
    old_files = table.files()
    next_offsets = {partition.partition: end for partition, end in ends.items()}
    log_ends = remember_ends(store, before if why_full is None else nothing, ends)
    after = replace(
        nothing,
        next_offsets=next_offsets,
        run=before.run + 1,
        details={**nothing.details, **planned.details, DETAIL: log_ends},
    )
    return _TopicRun(
        table=table,
        before=before,
        after=after,
        why_full=why_full,
        ranges=starts,
        tasks=partition_tasks(
            store,
            table,
            starts,
            Basis(before, old_files) if why_full is None else Basis(nothing),
            request,
            rows=planned.rows,
            right=right,
            run=after.run,
        ),
        replaced=old_files if why_full is not None else (),
        due_ms=due_ms if why_full is None else None,
        planned=planned,
        gone=() if request.rows.unwrap is None else tuple(_gone(store, partitions)),
    )


def _gone(store: Store, partitions: Sequence[TopicPartition]) -> Iterator[str]:
    for partition in partitions:
        first = store.partition(*partition).start_offset
        if first > 0:
            yield (
                f"{partition.topic}: partition {partition.partition} begins at offset {first}: rows of the database"
                " that have not changed since are not in the table. Let Debezium take a snapshot, and keep the topic"
                " with cleanup.policy=compact"
            )


def _starts(store: Store, before: TableState, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """What is read: from where the state has ended, as far as the log has it still."""
    return {
        partition: OffsetRange(
            max(before.next_offsets.get(partition.partition, 0), min(store.partition(*partition).start_offset, end)),
            end,
        )
        for partition, end in ends.items()
    }


def _ends(store: Store, request: SnapshotRequest, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    end: Offsets | Timestamps
    if request.as_of_ms is not None:
        end = Timestamps(everywhere_ms=request.as_of_ms)
    else:
        given = request.as_of_offsets.get(partitions[0].topic, {})
        numbers = {partition.partition for partition in partitions}
        if unknown := sorted(set(given) - numbers):
            raise InvalidConfig(f"there is no partition {unknown[0]} of topic {partitions[0].topic}")
        of = {TopicPartition(partitions[0].topic, number): offset for number, offset in given.items()}
        end = Offsets(everywhere=LATEST, of=of)
    found = resolve(store, partitions, Offsets(everywhere=EARLIEST), end, isolation=request.isolation)
    return {partition: bounds.end_offset for partition, bounds in found.items()}


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
