"""`duralog.scan`: records of many partitions as one stream of Arrow batches, for DuckDB, Polars, pandas and Arrow.

    reader = duralog.scan("data", topics=["orders"], columns=["key", "value"])
    duckdb.sql("select count(*) from reader")

The same planning and reading as in Spark: segments are left out by time index, the rest is cut into slices, and threads
read these ahead of the consumer. Decoding releases Python's lock.

Records come by topic, partition and offset. Memory is bounded by the decoded records of one task more than there are
threads. A task has one slice, or several small ones, of 8 MiB together.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from duralog.columnar.schema import RECORD_SCHEMA, TIMESTAMP, record_schema
from duralog.scanning.locations import open_store
from duralog.scanning.offset_ranges import resolve
from duralog.scanning.planning import plan
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.scanning.topic_choice import partitions_by_topic
from duralog.storage.log.isolation import Isolation

DEFAULT_THREADS = 2
_SLICE_BYTES = 8 << 20

_TaskRecords = tuple[list[pa.RecordBatch], Exception | None]
"""The records of a task, and the error after them, if reading failed."""


def scan(  # Public: its keyword arguments are the interface.
    path: str | os.PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    partition: int | None = None,
    columns: Sequence[str] | None = None,
    not_before_ms: int | None = None,
    before_ms: int | None = None,
    isolation: str = Isolation.READ_UNCOMMITTED,
    storage_options: Mapping[str, str] | None = None,
    threads: int = DEFAULT_THREADS,
) -> pa.RecordBatchReader:
    """Read the records of topics as a stream of Arrow batches, on threads; the log may be in use.

    `path` is a log directory or a URL (`s3://bucket/folder`, with `storage_options`). Without `topics`, all but
    Kafka's internal ones are read; `partition` picks one number of each. `columns` come in the order of the schema.

    With `not_before_ms` or `before_ms`, only records with such a timestamp are returned: those without any are left
    out. Segments that are too early are not read. Segments that are too late are read, but for topics with
    `message.timestamp.type=LogAppendTime`: no index has the earliest timestamp of a segment.

    The stream ends where the logs ended at the call. Damage raises `CorruptRecord` after the records before it, and
    records that retention deletes during the scan raise `OffsetOutOfRange`. To stop early, drop the reader:
    `reader.close()` alone leaves the threads.
    """
    if threads < 1:
        raise ValueError(f"threads must be 1 or more, not {threads}")
    for name, names in (("topics", topics), ("columns", columns)):
        if isinstance(names, str):
            raise TypeError(f"{name} must be a list of names: give [{names!r}] instead of {names!r}")
    level = Isolation(isolation)
    schema = record_schema(None if columns is None else tuple(columns))
    times = TimeRange(not_before_ms, before_ms)
    with open_store(os.fspath(path), storage_options) as store:
        chosen = partitions_by_topic(store, topics, partition)
        ranges = resolve(store, [found for of_topic in chosen.values() for found in of_topic], isolation=level)
        planned = plan(store, ranges, isolation=level, max_slice_bytes=_SLICE_BYTES, times=times)
    return pa.RecordBatchReader.from_batches(schema, _read_ahead(planned.tasks, partial(_read, schema, times), threads))


def _read_ahead(
    tasks: Sequence[tuple[Slice, ...]], read: Callable[[Sequence[Slice]], _TaskRecords], threads: int
) -> Iterator[pa.RecordBatch]:
    """The batches of all tasks, in order. A task starts when it is one of the next few."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="duralog-scan")
    try:
        started: deque[Future[_TaskRecords]] = deque()
        for task in tasks:
            started.append(pool.submit(read, task))
            if len(started) > threads:
                yield from _batches(started.popleft().result())
        while started:
            yield from _batches(started.popleft().result())
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(found: _TaskRecords) -> Iterator[pa.RecordBatch]:
    batches, error = found
    yield from batches
    if error is not None:
        raise error


def _read(schema: pa.Schema, times: TimeRange, slices: Sequence[Slice]) -> _TaskRecords:
    batches: list[pa.RecordBatch] = []
    try:
        if times == ANY_TIME:
            batches.extend(read_slices(slices, columns=schema.names))
        else:
            for batch in read_slices(slices, columns=[*schema.names, TIMESTAMP]):
                found = _between(batch, times)
                if found.num_rows:
                    batches.append(found.select(schema.names))
    except Exception as error:
        return batches, error
    return batches, None


def _between(records: pa.RecordBatch, times: TimeRange) -> pa.RecordBatch:
    """Those with a timestamp in the range. Planning leaves out whole slices only."""
    timestamps = records.column(TIMESTAMP)
    if times.not_before_ms is not None:
        records = records.filter(pc.greater_equal(timestamps, _timestamp(times.not_before_ms)))
    if times.before_ms is not None:
        records = records.filter(pc.less(records.column(TIMESTAMP), _timestamp(times.before_ms)))
    return records


def _timestamp(milliseconds: int) -> pa.Scalar:
    return pa.scalar(milliseconds, RECORD_SCHEMA.field(TIMESTAMP).type)
