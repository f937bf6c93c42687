"""The latest state of one partition, made by one task: its keys in a map, then the files.

The task reads the keys of the previous snapshot's files and of what is new in the log, and learns the last offset of
each. Then it writes the records that these offsets belong to. A file of the previous snapshot whose rows are all still
the latest stays as it is; what is left of the others is written again, together with what is new.

Memory: the map, eight bytes a key for the offsets, and what waits to become a row group. If the keys do not fit into
the map, the task reports this and has written nothing (`PartitionOutcome.is_too_large`): then the keys are shuffled
(`shuffle`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from duralog.columnar.schema import PARTITION
from duralog.errors import StorageError
from duralog.kernels.offset_map import DEFAULT_LOAD_FACTOR, OffsetMap, map_bytes_for
from duralog.scanning.executor import Advance, ignore_progress
from duralog.scanning.keyed_offsets import MapFull, Numbers, keys_of_log, live_offsets, put_all, rows_of_log
from duralog.scanning.slices import Slice
from duralog.spark.connector_columns import record_columns
from duralog.spark.lake.columns import to_table_columns
from duralog.spark.lake.keyed_files import count_of_file, keys_of_file, rows_of_file
from duralog.spark.lake.parquet_files import DataFile, ParquetFiles
from duralog.spark.lake.targets import LakeTarget
from duralog.spark.lake.writing_right import WritingRight

_MOST_FILES = 16
"""If a partition has more files that could stay, they become one: each run adds one at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """What the snapshot of one partition is made of."""

    topic: str
    partition: int
    slices: tuple[Slice, ...]
    """Of the log, from where the previous snapshot ended."""
    files: tuple[str, ...]
    """Of the previous snapshot."""
    first_offset: int
    """Where the log begins now: rows of the previous snapshot from before are gone from it."""
    most_keys: int
    """There cannot be more."""
    map_bytes: int
    right: WritingRight
    target: LakeTarget
    folder: str
    schema: pa.Schema
    stem: str
    copies: bool
    """Whether files that stay have to be in the folder of this run, too."""

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    partition: int
    added: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    live_keys: int = 0
    deleted_keys: int = 0
    """Keys whose last record is a tombstone."""
    records_read: int = 0
    """Of the log."""
    keyless_records: int = 0
    is_too_large: bool = False


def snapshot_partition(task: PartitionTask, _: Advance = ignore_progress) -> PartitionOutcome:
    """Make the snapshot of one partition."""
    memory_bytes = min(task.map_bytes, map_bytes_for(task.most_keys, DEFAULT_LOAD_FACTOR))
    offset_map = OffsetMap(memory_bytes)
    records = keyless = 0
    try:
        for path in task.files:
            for chunk in keys_of_file(task.target, path, task.first_offset):
                put_all(offset_map, chunk)
        for chunk in keys_of_log(task.slices):
            put_all(offset_map, chunk)
            records += chunk.records
            keyless += chunk.keyless
    except MapFull:
        return PartitionOutcome(partition=task.partition, is_too_large=True)
    marks = offset_map.offsets()
    del offset_map
    wanted = live_offsets(marks)
    added, removed = _write(task, wanted)
    return PartitionOutcome(
        partition=task.partition,
        added=added,
        removed=removed,
        live_keys=len(wanted),
        deleted_keys=len(marks) - len(wanted),
        records_read=records,
        keyless_records=keyless,
    )


def _write(task: PartitionTask, wanted: Numbers) -> tuple[list[DataFile], list[str]]:
    kept, rewritten = _sorted_out(task, wanted)
    value = str(task.partition)
    left = len(wanted) - sum(kept.values())
    with (
        task.right.used(),
        ParquetFiles(task.target, task.schema, column=PARTITION, stem=task.stem, folder=task.folder) as files,
    ):
        for path in rewritten:
            for rows in rows_of_file(task.target, path, wanted, task.schema):
                files.write(value, rows)
                left -= rows.num_rows
        columns = record_columns(task.schema.names)
        for records in rows_of_log(task.slices, wanted, columns):
            files.write(value, to_table_columns(records, task.schema))
            left -= records.num_rows
        check_complete(task.topic, task.partition, left)
        added = files.finish()
        if task.copies:
            for path in kept:
                task.target.copy(path, copied_path(task, path))
    return added, rewritten


def _sorted_out(task: PartitionTask, wanted: Numbers) -> tuple[dict[str, int], list[str]]:
    """The files of the previous snapshot that stay, with how many rows each has, and the others."""
    kept: dict[str, int] = {}
    rewritten: list[str] = []
    for path in task.files:
        total, latest = count_of_file(task.target, path, wanted)
        if latest == total:
            kept[path] = total
        else:
            rewritten.append(path)
    if len(kept) > _MOST_FILES:
        return {}, list(task.files)
    return kept, rewritten


def check_complete(topic: str, partition: int, missing: int) -> None:
    """All records that are the latest were found, and none twice."""
    if missing:
        raise StorageError(
            f"{topic}-{partition}: the log was compacted or cut while it was read, {abs(missing)} records are missing:"
            " run it again"
        )


def copied_path(task: PartitionTask, path: str) -> str:
    """Where a file that stays has its copy."""
    return f"{task.folder}{PARTITION}={task.partition}/{path.rpartition('/')[2]}"
