"""The latest state of one partition, made by one task: its keys in a map, then the files.

The task reads the keys of the previous snapshot's files and of what is new in the log, and learns the last offset of
each. Then it writes the records that these offsets belong to. A file of the previous snapshot whose rows are all still
the latest stays as it is; what is left of the others is written again, together with what is new.

Memory: the map, eight bytes a key for the offsets, and what waits to become a row group. If the keys do not fit into
the map, the task reports this and has written nothing (`PartitionOutcome.is_too_large`): then the keys are shuffled
(`shuffle`).
"""

from __future__ import annotations

from typing import NamedTuple

from duralog.errors import StorageError
from duralog.kernels.offset_map import DEFAULT_LOAD_FACTOR, OffsetMap, map_bytes_for
from duralog.scanning.executor import Advance, ignore_progress
from duralog.scanning.keyed_offsets import MapFull, Numbers, keys_of_log, live_offsets, put_all
from duralog.spark.jobs.snapshots.keyless_changes import KeylessChanges
from duralog.spark.jobs.snapshots.latest_rows import LatestRows
from duralog.spark.jobs.snapshots.partition_task import PartitionOutcome, PartitionTask
from duralog.spark.lake.keyed_files import corrupt_of_file, count_of_file, expired_among, keys_of_file
from duralog.spark.lake.parquet_files import DataFile, ParquetFiles

_MOST_FILES = 16
"""If a partition has more files that could stay, they become one: each run adds one at least."""


def snapshot_partition(task: PartitionTask, _: Advance = ignore_progress) -> PartitionOutcome:
    """Make the snapshot of one partition."""
    memory_bytes = min(task.map_bytes, map_bytes_for(task.most_keys, DEFAULT_LOAD_FACTOR))
    offset_map = OffsetMap(memory_bytes)
    identity = task.rows.identity
    changes = None if task.rows.unwrap is None else KeylessChanges(task)
    records = keyless = 0
    try:
        for path in task.files:
            for chunk in keys_of_file(task.target, path, task.first_offset, identity):
                put_all(offset_map, chunk)
        for chunk in keys_of_log(task.slices, identity, changes):
            put_all(offset_map, chunk)
            records += chunk.records
            keyless += chunk.keyless
    except MapFull:
        return PartitionOutcome(partition=task.partition, is_too_large=True)
    marks = offset_map.offsets()
    del offset_map
    count = len(marks)
    if changes is not None:
        marks = changes.left_of(marks)
    wanted, expired = live_offsets(marks), expired_among(marks, task.first_offset)
    del marks
    written = _write(task, wanted)
    return PartitionOutcome(
        partition=task.partition,
        added=written.added,
        removed=written.removed,
        live_keys=written.rows,
        deleted_keys=count - written.rows - expired,
        records_read=records,
        keyless_records=keyless,
        bad_records=written.latest.bad,
        left_out=written.latest.left_out,
        unavailable_rows=written.latest.unavailable,
        corrupt_rows=written.corrupt,
        expired_rows=expired,
    )


class _Written(NamedTuple):
    added: list[DataFile]
    removed: list[str]
    rows: int
    """Of the table's files, those included that stay."""
    latest: LatestRows
    corrupt: int
    """Rows of the table's files with something in `_corrupt`."""


def _write(task: PartitionTask, wanted: Numbers) -> _Written:
    kept, rewritten = _sorted_out(task, wanted)
    value = str(task.partition)
    latest = LatestRows(task, wanted)
    with (
        task.right.used(),
        ParquetFiles(task.target, task.rows.schema, column=task.column, stem=task.stem, folder=task.folder) as files,
    ):
        for path in rewritten:
            for rows in latest.of_file(path):
                files.write(value, rows)
        for rows in latest.of_log(task.slices):
            files.write(value, rows)
        check_complete(task.topic, task.partition, len(wanted) - sum(kept.values()) - latest.records)
        added = files.finish()
        if task.copies:
            for path in kept:
                task.target.copy(path, copied_path(task, path))
    corrupt = sum(corrupt_of_file(task.target, path) for path in kept) if task.rows.has_corrupt else 0
    return _Written(added, rewritten, sum(kept.values()) + latest.rows, latest, corrupt + latest.corrupt)


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
    return f"{task.folder}{task.column}={task.partition}/{path.rpartition('/')[2]}"
