"""The history of topics as tables: every record once, in files by day.

    export(spark, "data", "lake", topics=["orders"], format="delta")

Each topic is one table, `<target>/<topic>`, with the columns of Spark's Kafka connector and `date`, by which
it is partitioned: the UTC day of the record's timestamp. Records without a timestamp, or with one outside of the
calendar, have no date: their folder is `date=__HIVE_DEFAULT_PARTITION__`.

With `decode`, keys and values are columns of their schemas' types; with `unwrap`, each change event is a row of the
database's columns, with what happened to it (`lake.change_rows`). New columns of the topic become columns of the table
(`lake.evolution`).

Of the directories of a cluster, each partition is read from the copy that consumers were served, up to the high
watermark, and damage in it is read through (`duralog.scanning.cluster`).

A run continues where the last one ended. What must always be true:
- Every visible record below `next_offsets` is in the table once. A file's name has the partition and offsets; a run
  that died has left files from `next_offsets` on, which are removed before the next one begins.
- The offsets count from the moment of the commit. Delta and Iceberg hold them in the commit itself; plain Parquet has
  only the state file, which is written when all files are there.
- A log that was truncated and written again since the last run is refused (`lake.log_ends`): its offsets mean other
  records. So is a copy of a cluster that has another history than the table.
- Offsets never go back. The high watermark that a cluster's directories know may: checkpoints are some seconds old, and
  a directory may be missing. Then nothing is read until it passes what the table has.
- Tasks read their slice and write Parquet by themselves: no record passes through the JVM.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from duralog.errors import SchemaError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.directories import Paths
from duralog.scanning.cluster.healing import read_through_damage
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.executor import Advance, OnProgress, ignore_progress
from duralog.scanning.logs import AnyPlan, Logs, LogSet
from duralog.scanning.offset_ranges import OffsetRange, report_loss
from duralog.scanning.slices import DataLoss, Slice
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
from duralog.spark.jobs.export_ranges import check_made_from, new_ranges, not_read
from duralog.spark.jobs.export_report import ExportedTable, ExportReport
from duralog.spark.lake.change_rows import Unwrap
from duralog.spark.lake.columns import DATE, by_day, table_schema
from duralog.spark.lake.log_ends import DETAIL, check_ends, remember_ends
from duralog.spark.lake.made_from import MadeFrom
from duralog.spark.lake.opened_table import open_table
from duralog.spark.lake.parquet_files import EXTENSION, DataFile, ParquetFiles
from duralog.spark.lake.row_planning import PlannedRows, RowRequest, plan_rows
from duralog.spark.lake.table_rows import TableRows
from duralog.spark.lake.table_state import StateRefused, TableFormat, TableState
from duralog.spark.lake.tables import (
    LakeTable,
    TableRefused,
    TableSpec,
    check_apart,
    split_options,
)
from duralog.spark.lake.targets import PART_SUFFIX, LakeTarget
from duralog.spark.lake.writing_right import WritingRight, only_writer
from duralog.storage.log.isolation import Isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ExportReport", "ExportedTable", "export"]

_JOB = "export"
_FILE_NAME = re.compile(rf"part-(\d{{5,10}})-(\d{{20}})-(\d{{20}})(?:-\d+)?{re.escape(EXTENSION)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Some neighbouring slices of one partition."""

    slices: tuple[Slice, ...]
    right: WritingRight
    target: LakeTarget
    folder: str
    column: str
    """By which the table is partitioned."""
    rows: TableRows
    fail_on_data_loss: bool

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    files: list[DataFile]
    lost: list[str]
    healed: list[str]
    bad: int
    left_out: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class _TopicRun:
    """The export of one topic, from opening its table to the report."""

    table: LakeTable
    state: TableState
    """As it is before."""
    ranges: dict[TopicPartition, OffsetRange]
    log_ends: dict[str, Any]
    """By what the next run recognises the logs."""
    made_from: MadeFrom
    tasks: list[_Task]
    read_bytes: int
    leftover_files: int
    planned: PlannedRows
    healed: tuple[str, ...]
    """By the plan; tasks heal more."""
    findings: tuple[str, ...]
    lost: list[str] = field(default_factory=list)

    def commit(self, written: Sequence[_Written]) -> ExportedTable:
        spec = self.table.spec
        files = [file for task in written for file in task.files]
        ends = {partition.partition: found.end_offset for partition, found in self.ranges.items()}
        after = replace(
            self.state,
            next_offsets={**self.state.next_offsets, **ends},
            run=self.state.run + 1,
            details={
                **self.state.details,
                **self.planned.details,
                **self.made_from.detail(),
                DETAIL: self.log_ends,
            },
        )
        if files or dict(after.next_offsets) != dict(self.state.next_offsets):
            self._commit(after, files)
        return ExportedTable(
            topic=spec.topic,
            path=spec.target.location,
            format=str(self.state.table_format),
            records=sum(file.records for file in files),
            undated_records=sum(file.records for file in files if file.value is None),
            files=len(files),
            read_bytes=self.read_bytes,
            written_bytes=sum(file.size_bytes for file in files),
            start_offsets={partition.partition: found.start_offset for partition, found in self.ranges.items()},
            end_offsets=ends,
            leftover_files=self.leftover_files,
            bad_records=sum(task.bad for task in written),
            left_out_fields=count_left_out(task.left_out for task in written),
            findings=(*self.planned.findings, *self.findings),
            column_changes=self.planned.evolution.changes(),
            lost=(*self.lost, *(loss for task in written for loss in task.lost)),
            healed=(*self.healed, *(each for task in written for each in task.healed)),
        )

    def _commit(self, after: TableState, files: Sequence[DataFile]) -> None:
        target, ours = self.table.spec.target, {file.path for file in files}
        listed = {file.path for file in target.files(self.table.data_folder.rstrip("/"))}
        if gone := sorted(ours - listed):
            raise TableRefused(
                f"{self.table.spec.where}: {gone[0]} is gone, which this run wrote: another one writes to the table,"
                " too. Run it again, one at a time"
            )
        # Of an attempt whose executor was lost: where the log was compacted meanwhile, it had other files.
        strays = {*_leftovers(listed, self.state)} - ours
        if not self.table.has_commits:
            # Every file in the folder counts there.
            target.delete(strays)
        self.table.commit(after, files)
        if self.table.has_commits:
            # Not before: if another run has committed meanwhile, these are its files, and the commit is refused.
            target.delete(strays)


def export(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: Paths,
    target: str,
    *,
    topics: Sequence[str] | None = None,
    format: str = TableFormat.PARQUET,
    headers: bool = False,
    isolation: str = Isolation.READ_COMMITTED,
    fail_on_data_loss: bool = True,
    max_slice_bytes: int = 128 << 20,
    storage_options: Mapping[str, str] | None = None,
    target_options: Mapping[str, str] | None = None,
    decode: str | Mapping[str, Any] | Decode | None = None,
    unwrap: str | None = None,
    columns: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Append what is new in the topics to their tables, all topics but the internal ones if none are named.

    A list of directories, a glob or a manifest is a cluster: what consumers were served is exported. Which directories
    are given may change from run to run.

    `decode` is the format of the values, as `auto` or `avro`, or a mapping of the options of typed payloads
    (`duralog.schemas.decode_options`). `unwrap="debezium"` makes change events rows of the database's table: all of
    them, in their order. `columns` are the fields of decoded keys and values that are wanted, as `value.customer.name`.

    `storage_options` are for the log directory, `target_options` for the target; among the latter, `catalog.*` are the
    settings of the Iceberg catalog. With `fail_on_data_loss`, records that retention deleted before they were
    exported are an error, and nothing is written; without it, the report lists them.
    """
    began = time.perf_counter()
    table_format, level = TableFormat(format), Isolation(isolation)
    request = _Request(
        rows=RowRequest.of(decode, unwrap, Unwrap.HISTORY, headers=headers, columns=columns),
        fail_on_data_loss=fail_on_data_loss,
        max_slice_bytes=max_slice_bytes,
    )
    options, catalog = split_options(target_options)
    with ExitStack() as stack:
        logs = stack.enter_context(LogSet.of(path, storage_options).open())
        runs = []
        for topic, partitions in partitions_by_topic(logs, topics, schemas_topic=request.rows.schemas_topic).items():
            folder = LakeTarget.of(target, options).child(topic)
            spec = TableSpec(
                job=_JOB,
                topic=topic,
                target=folder,
                schema=table_schema(headers=headers, date=True),
                partition_column=request.rows.name(DATE),
                catalog=catalog,
            )
            check_apart(folder, logs.locations)
            right = stack.enter_context(only_writer(folder, _JOB))
            table = open_table(table_format, spec)
            nothing = TableState(
                job=_JOB,
                topic=topic,
                topic_id=logs.topic_id(topic),
                table_format=table_format,
                isolation=str(level),
                headers=headers,
                next_offsets={},
                run=0,
            )
            run = _prepare(logs, table, right, nothing, partitions, request)
            if run is not None:
                runs.append(run)
            elif topics is not None:
                raise SchemaError(f"topic {topic} has no records, so the columns of its table are not known yet")
        if not runs:
            raise SchemaError(f"{logs.path}: no topic has records, so the columns of the tables are not known yet")
        tasks = [task for run in runs for task in run.tasks]
        written = iter(
            SparkExecutor(spark, on_progress).run(
                tasks,
                _write,
                weight=lambda task: task.size_bytes,
                name=_JOB,
                writes=True,
            )
        )
        tables = tuple(run.commit([next(written) for _ in run.tasks]) for run in runs)
        problems = (*map(str, logs.problems), *missing_topics(logs, topics))
    return ExportReport(tables=tables, seconds=time.perf_counter() - began, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What the caller asked for, the same for every topic."""

    rows: RowRequest
    fail_on_data_loss: bool
    max_slice_bytes: int


def _prepare(
    logs: Logs,
    table: LakeTable,
    right: WritingRight,
    nothing: TableState,
    partitions: list[TopicPartition],
    request: _Request,
) -> _TopicRun | None:
    """Find what is new in a topic, and remove what a run that died has left. None if its columns are not known."""
    spec = table.spec
    state = table.state or nothing
    state.check(nothing, spec.where)
    if state.isolation != nothing.isolation:
        raise StateRefused(
            f"{spec.where}: it was exported with {state.isolation}, so {nothing.isolation} needs another target"
        )
    made_from = MadeFrom.of(logs, partitions)
    check_made_from(made_from, state, spec.where)
    check_ends(logs, state, partitions, where=spec.where, taken="was exported up to", advice="Give another target")
    lost: list[str] = []
    on_data_loss = None if request.fail_on_data_loss else _collected_in(lost)
    level = Isolation(state.isolation)
    there = logs.resolve(partitions, isolation=level)
    ranges = new_ranges(there, state, on_data_loss)
    rows = plan_rows(logs, ranges, table.state, request.rows, isolation=level, where=spec.where)
    if rows is None:
        return None
    table.evolve(rows.evolution, is_rewritten=False)
    table.begin(nothing)
    planned = logs.plan(
        ranges,
        isolation=level,
        max_slice_bytes=request.max_slice_bytes,
        on_data_loss=on_data_loss,
    )
    for loss in planned_losses(planned, ranges):
        report_loss(loss, on_data_loss)
    leftovers = _leftovers((file.path for file in spec.target.files(table.data_folder.rstrip("/"))), state)
    return _TopicRun(
        table=table,
        state=state,
        ranges=ranges,
        log_ends=remember_ends(logs, state, {partition: found.end_offset for partition, found in ranges.items()}),
        made_from=made_from,
        tasks=_tasks(table, right, planned, rows, request.fail_on_data_loss),
        read_bytes=planned.planned_bytes,
        leftover_files=spec.target.delete(leftovers),
        planned=rows,
        healed=planned_from_others(planned),
        findings=(
            *copy_problems(planned),
            *missing_partitions(logs, spec.topic),
            *not_read(spec.topic, there, state),
        ),
        lost=lost,
    )


def _collected_in(lost: list[str]) -> Callable[[DataLoss], None]:
    return lambda loss: lost.append(str(loss))


def _leftovers(paths: Iterable[str], state: TableState) -> list[str]:
    """Files of a run that was never committed."""
    found = []
    for path in paths:
        name = path.rpartition("/")[2]
        match = _FILE_NAME.fullmatch(name)
        is_new = match is not None and int(match[2]) >= state.next_offsets.get(int(match[1]), 0)
        if is_new or (name.startswith(".part-") and name.endswith(PART_SUFFIX)):
            found.append(path)
    return found


def _tasks(
    table: LakeTable, right: WritingRight, planned: AnyPlan, rows: PlannedRows, fail_on_data_loss: bool
) -> list[_Task]:
    """A file holds records of one partition, so that its name can have their offsets."""
    spec = table.spec
    return [
        _Task(
            slices=tuple(slices),
            right=right,
            target=spec.target,
            folder=table.data_folder,
            column=spec.partition_column,
            rows=replace(rows.rows, schema=table.file_schema),
            fail_on_data_loss=fail_on_data_loss,
        )
        for task in planned.tasks
        for _, slices in groupby(task, key=lambda found: found.partition)
    ]


def _write(task: _Task, _: Advance = ignore_progress) -> _Written:
    """Write the files of one task."""
    first, last = task.slices[0], task.slices[-1]
    stem = f"part-{first.partition:05d}-{first.start_offset:020d}-{last.end_offset:020d}"
    lost: list[str] = []
    healed: list[HealedRange] = []
    bad, left_out = 0, dict[str, int]()
    on_data_loss = None if task.fail_on_data_loss else _collected_in(lost)
    with (
        task.right.used(),
        ParquetFiles(task.target, task.rows.schema, column=task.column, stem=stem, folder=task.folder) as files,
    ):
        for records in read_through_damage(
            task.slices,
            columns=task.rows.columns,
            on_healed=healed.append,
            on_data_loss=on_data_loss,
            on_missing=partial(report_loss, on_data_loss=on_data_loss),
        ):
            for day, of_day in by_day(records):
                rows = task.rows.of(of_day, day)
                bad += rows.bad
                left_out = count_left_out((left_out, rows.left_out))
                files.write(None if day is None else day.isoformat(), rows.batch)
        return _Written(
            files=files.finish(), lost=lost, healed=[str(each) for each in healed], bad=bad, left_out=left_out
        )
