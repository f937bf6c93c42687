"""How many different keys a partition has, by prefix: exactly, by the digests of all keys.

A task has a map of the keys of a whole partition, with the number of its prefix as each key's mark. A partition whose
keys do not fit is shuffled. Keys that are equal have the same prefix, so any of their marks will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorrupt
from duralog.columnar.runs import Rows
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import DEFAULT_LOAD_FACTOR, OffsetMap
from duralog.spark.jobs.key_prefixes import PrefixRule, prefixes_of
from duralog.spark.jobs.key_shuffle import keys_frame, last_marks, slices_by_task
from duralog.spark.jobs.keyed_offsets import KeyedChunk, MapFull, put_all, within
from duralog.spark.slice_reading import read_slice_pieces
from duralog.spark.slices import CorruptBytes, Slice
from duralog.spark.tasks import as_sentence
from duralog.storage.compaction_run import map_bytes_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysTask:
    """All keys of one partition."""

    slices: tuple[Slice, ...]
    rule: PrefixRule | None
    numbers: Mapping[bytes | None, int]
    """Of the prefixes."""
    most_keys: int
    """There are not more records with a key."""
    map_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


def count_keys(task: KeysTask) -> dict[int, int] | None:
    """What a Spark task does: how many keys there are, by the number of their prefix. None if they do not fit."""
    offset_map = OffsetMap(min(task.map_bytes, map_bytes_for(task.most_keys, DEFAULT_LOAD_FACTOR)))
    try:
        for chunk in _numbered(task, task.slices):
            put_all(offset_map, chunk)
    except MapFull:
        return None
    found, counts = np.unique(offset_map.offsets(), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def count_shuffled_keys(spark: SparkSession, task: KeysTask) -> dict[int, int]:
    """The same with the memory of all executors."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    sources = slices_by_task(task.slices)

    def batches_of(number: int) -> Iterator[pa.RecordBatch]:
        return last_marks(number, _numbered(task, sources[number]), task.map_bytes)

    keys = keys_frame(spark, len(sources), batches_of)
    distinct = keys.groupBy("high", "low").agg(functions.max("mark").alias("mark"))
    try:
        return {row.mark: row["count"] for row in distinct.groupBy("mark").count().collect()}
    except PySparkException as error:
        raise as_sentence("stats", error) from error


def _numbered(task: KeysTask, slices: tuple[Slice, ...]) -> Iterator[KeyedChunk]:
    for found in slices:
        yield from read_slice_pieces(found, partial(_numbered_piece, task, found), on_corrupt=_counted_before)


def _counted_before(_: CorruptBytes) -> None:
    """Damage is told by the first pass (`record_counts`)."""


def _numbered_piece(
    task: KeysTask, found: Slice, piece: Piece, rows: Rows | None, refuse: OnCorrupt
) -> Iterator[KeyedChunk]:
    for decoded in piece.decode(rows, on_corrupt=refuse):
        records = within(decoded, found)
        records = records.take(records.columns.key_length >= 0)
        columns = records.columns
        digests = digests_of(records.data, columns.key_position, columns.key_length)
        marks = np.zeros(len(records), np.int64)
        if task.rule is not None and len(records):
            prefixes = prefixes_of(records, task.rule)
            marks = np.array([task.numbers[prefix] for prefix in prefixes.values], np.int64)[prefixes.codes]
        yield KeyedChunk(digests, marks, len(records), 0)
