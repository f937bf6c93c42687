"""One task's part in a write: its rows, as they come, into a staged file."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from duralog.spark.sink.row_encoding import RowEncoder
from duralog.spark.sink.staging import StagedTask, StagingFile, WriteTask
from duralog.spark.sink.write_columns import as_records, record_names
from duralog.spark.sink.write_options import WriteOptions
from duralog.spark.sink.write_targets import WriteTargets
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem

GATHERED_BYTES = 32 << 20
"""Rows are gathered up to here before they are sorted by partition: so that each partition gets full batches."""


def stage_rows(
    rows: Iterable[pa.RecordBatch],
    targets: WriteTargets,
    options: WriteOptions,
    task: WriteTask,
    *,
    file_system: FileSystem | None = None,
    clock: Clock = wall_clock_ms,
    gathered_bytes: int = GATHERED_BYTES,
) -> StagedTask:
    """Encode and stage all rows, or raise and leave nothing behind."""
    files = file_system or LocalFileSystem()
    staging = StagingFile(files, options.path, task)
    encoder = RowEncoder(targets, options, task=task.number, clock=clock)
    gathered: list[pa.RecordBatch] = []

    def stage() -> None:
        table = pa.Table.from_batches(gathered)
        gathered.clear()
        for run in encoder.encode(as_records(table, record_names(table.schema, options))):
            staging.add(run)

    try:
        size = 0
        for piece in rows:
            if piece.num_rows:
                gathered.append(piece)
                size += piece.nbytes
            if size >= gathered_bytes:
                stage()
                size = 0
        if gathered:
            stage()
        return staging.finish()
    except BaseException:
        staging.discard()
        raise
