"""Writes as Spark's driver and tasks make them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from duralog.spark.sink.commit import CommitReport, commit
from duralog.spark.sink.staging import StagedTask, WriteTask
from duralog.spark.sink.staging_task import stage_rows
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.spark.sink.write_targets import store_targets
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.store import Store

WRITER = "0123456789abcdef" * 2
NOW_MS = 1_700_000_000_000


def options_of(path: object, **options: object) -> WriteOptions:
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    return WriteOptions.of({"path": str(path), **given}, streaming=False)


def rows_of(**columns: Sequence[object] | pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def stage(
    options: WriteOptions,
    tasks: Sequence[Sequence[pa.RecordBatch]],
    *,
    writer: str = WRITER,
    batch: int = 0,
    files: FileSystem | None = None,
    gathered_bytes: int = 1 << 20,
    now_ms: int = NOW_MS,
) -> list[StagedTask]:
    targets = store_targets(options, files)
    return [
        stage_rows(
            rows,
            targets,
            options,
            WriteTask(writer, batch, task),
            file_system=files,
            clock=lambda: now_ms,
            gathered_bytes=gathered_bytes,
        )
        for task, rows in enumerate(tasks)
    ]


def write(
    options: WriteOptions,
    *tasks: Sequence[pa.RecordBatch],
    writer: str = WRITER,
    transaction: AppVersion | None = None,
    files: FileSystem | None = None,
    gathered_bytes: int = 1 << 20,
    now_ms: int = NOW_MS,
) -> CommitReport:
    """A whole write: one list of Arrow batches for each task."""
    staged = stage(options, tasks, writer=writer, files=files, gathered_bytes=gathered_bytes, now_ms=now_ms)
    return commit(staged, options, writer=writer, transaction=transaction, file_system=files, clock=lambda: now_ms)


def values_in(path: object, files: FileSystem | None = None) -> dict[tuple[str, int], list[bytes | None]]:
    """The values of every partition that has any."""
    if not LogDirectory(files or LocalFileSystem(), str(path)).has_logs():
        return {}
    with Store(str(path), read_only=True, file_system=files) as store:
        found = {
            (topic, number): [record.value for record in log.read(log.start_offset)]
            for topic in store.topics()
            for number in store.partitions(topic)
            for log in [store.partition(topic, number)]
        }
    return {partition: values for partition, values in found.items() if values}


def offsets_in(path: object, topic: str, partition: int, files: FileSystem | None = None) -> list[int]:
    with Store(str(path), read_only=True, file_system=files) as store:
        log = store.partition(topic, partition)
        return [record.offset for record in log.read(log.start_offset)]


def make_topic(path: object, name: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> None:
    with Store(str(path)) as store:
        store.create_topic(name, partitions, config)
