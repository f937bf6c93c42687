"""Decoded records of one partition as one Arrow table.

While one chunk is copied into Arrow's buffers, the next one can be decoded: a second thread copies, if there is more
than one chunk. Only a few are under way at a time, so memory holds the table and little else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice

import pyarrow as pa

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.schema import RECORD_SCHEMA

_MOST_UNDER_WAY = 4


def to_table(
    chunks: Iterable[DecodedRecords], *, topic: str, partition: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """A table with a chunk for each chunk of records. Columns are in the schema's order."""
    unknown = set(columns or ()) - set(RECORD_SCHEMA.names)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}; there are {RECORD_SCHEMA.names}")
    schema = pa.schema([field for field in RECORD_SCHEMA if columns is None or field.name in columns])

    def convert(chunk: DecodedRecords) -> pa.RecordBatch:
        return chunk.to_arrow(topic=topic, partition=partition, columns=columns)

    return pa.Table.from_batches(_each(convert, iter(chunks)), schema)


def _each(
    convert: Callable[[DecodedRecords], pa.RecordBatch], chunks: Iterator[DecodedRecords]
) -> list[pa.RecordBatch]:
    first_two = list(islice(chunks, 2))
    if len(first_two) < 2:
        return [convert(chunk) for chunk in first_two]
    done: list[pa.RecordBatch] = []
    under_way: deque[Future[pa.RecordBatch]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="duralog-arrow") as helper:
        for chunk in chain(first_two, chunks):
            under_way.append(helper.submit(convert, chunk))
            if len(under_way) > _MOST_UNDER_WAY:
                done.append(under_way.popleft().result())
        done += [future.result() for future in under_way]
    return done
