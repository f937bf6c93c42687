"""What the tasks of a snapshot read: of each partition what is new in its log, and the files of the last snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.slices import Slice
from duralog.spark.jobs.snapshots.partition_task import PartitionTask
from duralog.spark.lake.parquet_table import ParquetVersions
from duralog.spark.lake.row_planning import RowRequest
from duralog.spark.lake.table_rows import TableRows
from duralog.spark.lake.table_state import TableFormat, TableState
from duralog.spark.lake.tables import LakeTable
from duralog.spark.lake.writing_right import WritingRight
from duralog.storage.log.isolation import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """What the caller asked for, the same for every topic."""

    format: TableFormat
    isolation: Isolation
    as_of_ms: int | None
    as_of_offsets: Mapping[str, Mapping[int, int]]
    full: bool
    rows: RowRequest
    map_bytes: int
    max_slice_bytes: int

    @property
    def is_latest(self) -> bool:
        return self.as_of_ms is None and not self.as_of_offsets


@dataclass(frozen=True, slots=True)
class Basis:
    """The snapshot that a run continues: an empty one if it makes a full one."""

    state: TableState
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What a run reads: the offsets of each partition, and the slices of the logs that have them."""

    ranges: Mapping[TopicPartition, OffsetRange]
    slices: Iterable[Slice]


def partition_tasks(
    table: LakeTable,
    new_records: NewRecords,
    basis: Basis,
    *,
    map_bytes: int,
    rows: TableRows,
    right: WritingRight,
    after: TableState,
) -> list[PartitionTask]:
    """A task for each partition that has something to do. `rows` is what it writes, `after` the state of this run."""
    spec = table.spec
    copies = isinstance(table, ParquetVersions)
    slices_of = {
        number: tuple(found) for number, found in groupby(new_records.slices, key=lambda found: found.partition)
    }
    files_of = _by_folder(basis.files)
    tasks = []
    is_changed = {}
    for partition, wanted in new_records.ranges.items():
        number = partition.partition
        first_offset = after.details["first_offsets"][str(number)]
        new = slices_of.get(number, ())
        known = basis.state.details["live_keys"].get(str(number), 0)
        is_changed[number] = bool(new) or first_offset != basis.state.details["first_offsets"].get(str(number))
        tasks.append(
            PartitionTask(
                topic=spec.topic,
                partition=number,
                slices=new,
                files=files_of.get(f"{spec.partition_column}={number}", ()),
                first_offset=first_offset,
                previous_end=basis.state.next_offsets.get(number, 0),
                most_keys=known + wanted.end_offset - wanted.start_offset,
                map_bytes=map_bytes,
                right=right,
                target=spec.target,
                folder=table.data_folder,
                rows=replace(rows, schema=table.file_schema),
                column=spec.partition_column,
                is_only=len(new_records.ranges) == 1,
                stem=f"part-{after.run:06d}-{number:05d}-{right.run_id[:8]}",
                copies=copies,
            )
        )
    # A new folder must hold everything, unless nothing at all has changed.
    needs_all = copies and any(is_changed.values())
    return [task for task in tasks if (needs_all or is_changed[task.partition]) and (task.slices or task.files)]


def _by_folder(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By the last folder of each."""
    folders: dict[str, tuple[str, ...]] = {}
    for path in paths:
        folder = path.rpartition("/")[0].rpartition("/")[2]
        folders[folder] = (*folders.get(folder, ()), path)
    return folders
