"""The steps of `keys` as a Spark query: Arrow in and out of the tasks, Spark's shuffle between them.

A few large rows are sent, with many keys each. So Spark does hardly any work for single keys.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from duralog.scanning.executor import PROGRESS_SECONDS, OnProgress, TaskProgress
from duralog.spark.executor import SparkExecutor, task_failure
from duralog.spark.jobs.compaction.keys import segment_keys
from duralog.spark.jobs.compaction.marks import segment_marks, superseded_offsets
from duralog.spark.jobs.compaction.rows import KeyRow, KeyShuffle, RowKind, SegmentMarks, SegmentToRead
from duralog.spark.spark_versions import repartition_by_id
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.lent_lock import joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS = "target int, segment int, kind int, `order` bigint, digests binary, offsets binary"
MARKS = "segment int, marks binary"

_ROWS = pa.schema(
    [
        pa.field("target", pa.int32()),
        pa.field("segment", pa.int32()),
        pa.field("kind", pa.int32()),
        pa.field("order", pa.int64()),
        pa.field("digests", pa.binary()),
        pa.field("offsets", pa.binary()),
    ]
)
_MARKS = pa.schema([pa.field("segment", pa.int32()), pa.field("marks", pa.binary())])
_BATCH_BYTES = 4 << 20
_ARROW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTasks:
    """What the tasks of all steps need. Each of them keeps the directory locked while it works."""

    shuffle: KeyShuffle
    segments: Sequence[SegmentToRead]
    lock_path: str
    job: str

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with joined(self.lock_path, self.job):
            files = LocalFileSystem()
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _batches(segment_keys(files, self.shuffle, self.segments[number]))

    def judge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _batches(superseded_offsets(self.shuffle, _rows(batches)))

    def mark(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with joined(self.lock_path, self.job):
            marks = segment_marks(LocalFileSystem(), self.shuffle, self.segments, _rows(batches))
        numbers = pa.array([found.segment for found in marks], pa.int32())
        pickled = pa.array([pickle.dumps(found) for found in marks], pa.binary())
        yield pa.RecordBatch.from_arrays([numbers, pickled], schema=_MARKS)


def shuffle_keys(executor: SparkExecutor, tasks: KeyTasks, *, name: str) -> list[SegmentMarks]:
    """What is known of each segment, in their order. Raises the error of a task as it was raised there."""
    # A new session, for its settings: rows are large here, and an Arrow batch must not hold thousands of them.
    session = executor.spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_ARROW_BYTES))
    numbers = session.range(0, len(tasks.segments), 1, len(tasks.segments))
    keys = numbers.mapInArrow(tasks.read, ROWS)
    superseded = repartition_by_id(keys, tasks.shuffle.shares, "target").mapInArrow(tasks.judge, ROWS)
    mark_tasks = max(tasks.shuffle.mark_tasks) + 1
    marks = repartition_by_id(superseded, mark_tasks, "target").mapInArrow(tasks.mark, MARKS)
    query = _Query(executor.spark, marks, name, len(tasks.segments) + tasks.shuffle.shares + mark_tasks)
    found: dict[int, SegmentMarks] = {
        row.segment: pickle.loads(row.marks) for row in query.collect(executor.on_progress)
    }
    ordered = [found[segment.number] for segment in tasks.segments]
    for one in ordered:
        if one.findings.error is not None:
            raise one.findings.error
    return ordered


class _Query:
    """A query that runs in another thread, while this one reports progress, counted in tasks."""

    def __init__(self, spark: SparkSession, frame: DataFrame, name: str, tasks: int) -> None:
        self._context = spark.sparkContext
        self._frame = frame
        self._name = name
        self._tasks = tasks
        self._group = f"duralog-{uuid.uuid4()}"
        self._rows: list[Row] = []
        self._failure: Exception | None = None

    def collect(self, on_progress: OnProgress | None) -> list[Row]:
        from pyspark import InheritableThread

        thread = InheritableThread(target=self._run, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(PROGRESS_SECONDS)
                if on_progress is not None:
                    on_progress(self._progress(self._tasks_done()))
        except BaseException:
            self._context.cancelJobGroup(self._group)
            thread.join()
            raise
        if self._failure is not None:
            raise task_failure(self._name, self._failure) from self._failure
        if on_progress is not None:
            on_progress(self._progress(self._tasks))
        return self._rows

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._name)
            self._rows = self._frame.collect()
        except Exception as error:
            self._failure = error

    def _progress(self, done: int) -> TaskProgress:
        return TaskProgress(
            name=self._name,
            tasks=self._tasks,
            tasks_done=done,
            weight=self._tasks,
            weight_done=done,
            is_in_bytes=False,
        )

    def _tasks_done(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        found = [tracker.getStageInfo(stage) for stage in stages]
        return min(sum(stage.numCompletedTasks for stage in found if stage is not None), self._tasks)


def _batches(rows: Iterable[KeyRow]) -> Iterator[pa.RecordBatch]:
    """A few rows together, some megabytes in all."""
    held: list[KeyRow] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.digests) + len(row.offsets)
        if size >= _BATCH_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(rows: Sequence[KeyRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(columns, _ROWS, strict=True)], schema=_ROWS
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[KeyRow]:
    for batch in batches:
        target, segment, kind, order, digests, offsets = batch.columns
        for place in range(batch.num_rows):
            yield KeyRow(
                target[place].as_py(),
                segment[place].as_py(),
                RowKind(kind[place].as_py()),
                order[place].as_py(),
                memoryview(digests[place].as_buffer()),
                memoryview(offsets[place].as_buffer()),
            )
