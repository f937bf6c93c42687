"""Shuffling keys with Spark: digests and marks (`duralog.scanning.keyed_offsets`), no keys and no records.

Every source, mostly a part of a log, is a task that sends the last mark of each of its keys, so a frequent key is sent
once for each source. The memory of a task is bounded by its map: when it is full, its keys are sent and it is cleared.
Spark spills what does not fit into its own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from duralog.columnar.decoded import CHUNK_RECORDS
from duralog.kernels.key_digests import Digests
from duralog.kernels.offset_map import OffsetMap
from duralog.scanning.keyed_offsets import KeyedChunk, Numbers
from duralog.spark.plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAP_BYTES = 64 << 20
_SCHEMA = "source int, high long, low long, mark long"


def keys_frame(spark: SparkSession, sources: int, batches_of: Callable[[int], Iterator[pa.RecordBatch]]) -> DataFrame:
    """What `batches_of` returns for the numbers of all sources, each in its own task."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with plain_errors():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from batches_of(number)

    return spark.range(0, sources, 1, sources).mapInArrow(read, _SCHEMA)


def last_marks(source: int, chunks: Iterable[KeyedChunk], map_bytes: int = _MAP_BYTES) -> Iterator[pa.RecordBatch]:
    """The last mark of each key; several of a key if the map was full in between."""
    offset_map = OffsetMap(min(_MAP_BYTES, map_bytes))
    for chunk in chunks:
        taken = 0
        while taken < len(chunk.marks):
            taken += offset_map.put(chunk.digests[taken:], chunk.marks[taken:])
            if taken < len(chunk.marks):
                yield from mark_batches(source, *offset_map.entries())
                offset_map.clear()
    yield from mark_batches(source, *offset_map.entries())


def mark_batches(source: int, digests: Digests, marks: Numbers) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(marks), CHUNK_RECORDS):
        part = slice(first, first + CHUNK_RECORDS)
        words = digests[part].view(np.int64)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(len(words), source, np.int32)),
                pa.array(np.ascontiguousarray(words[:, 0])),
                pa.array(np.ascontiguousarray(words[:, 1])),
                pa.array(marks[part]),
            ],
            names=["source", "high", "low", "mark"],
        )
