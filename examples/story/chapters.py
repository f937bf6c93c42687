"""What happens in the story, one function for each step. Each returns what it measured: nothing else is shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

import duralog
from examples.story.change_stream import FIRST_MS, HOUR_MS, HOURS, ChangeStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "product.changes"
PARTITIONS = 4
_SEGMENT_BYTES = 8 << 20
_MICRO_BATCHES = 4
_HOT_KEYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    records: int
    deletions: int
    keys: int
    live_keys: int
    """Whose last record is no deletion: what a snapshot must have."""
    per_key: Sequence[int]
    """How many records each key has, the most first."""
    hot_keys: Sequence[tuple[str, int]]
    """The keys that have the most, and how many."""
    raw_bytes: int
    """Of keys and values, before they were compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    partition: int
    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    records: int
    deletions: int
    micro_batches: int
    per_hour: Sequence[int]


def write_changes(path: str, records: int, products: int) -> Written:
    """Make the stream and append it, compressed with lz4, to a compacted topic."""
    last_is_deletion = np.ones(products, np.bool_)
    counts = np.zeros(products, np.int64)
    deletions = raw_bytes = 0
    with duralog.open(path, {"log.cleaner.enable": False}) as store:
        store.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "compact", "segment.bytes": _SEGMENT_BYTES})
        logs = [store.partition(TOPIC, number) for number in range(PARTITIONS)]
        for chunk in ChangeStream(records, products).chunks():
            for number, log in enumerate(logs):
                log.append_arrow(chunk.table.filter(chunk.products % PARTITIONS == number), codec="lz4")
            # Of several assignments to one place, numpy keeps the last.
            last_is_deletion[chunk.products] = chunk.is_deletion
            counts += np.bincount(chunk.products, minlength=products)
            deletions += int(chunk.is_deletion.sum())
            raw_bytes += sum(pc.sum(pc.binary_length(chunk.table[name])).as_py() for name in ("key", "value"))
    return Written(
        records=records,
        deletions=deletions,
        keys=int((counts > 0).sum()),
        live_keys=int((~last_is_deletion).sum()),
        per_key=np.sort(counts[counts > 0])[::-1].tolist(),
        hot_keys=[(f"product-{product}", int(counts[product])) for product in np.argsort(-counts)[:_HOT_KEYS]],
        raw_bytes=raw_bytes,
    )


def segment_files(path: str) -> list[SegmentFile]:
    with duralog.open(path, read_only=True) as store:
        return [
            SegmentFile(partition=number, base_offset=segment.base_offset, size_bytes=segment.size_bytes)
            for number in store.partitions(TOPIC)
            for segment in store.partition(TOPIC, number).segments
            if segment.size_bytes
        ]


def stream_changes(spark: SparkSession, path: str, checkpoint: str, records: int) -> Streamed:
    """As a stream, in a few micro-batches: how many changes and deletions there were in each hour."""
    from pyspark.sql import functions as f

    limit = max(1, -(-records // _MICRO_BATCHES))
    changes = (
        spark.readStream.format("duralog")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("columns", "timestamp,value")
        .option("maxOffsetsPerTrigger", str(limit))
        .load(path)
    )
    hour = f.floor((f.unix_millis("timestamp") - FIRST_MS) / HOUR_MS).cast("int").alias("hour")
    totals = changes.groupBy(hour).agg(
        f.count("*").alias("changes"), f.count_if(f.col("value").isNull()).alias("deletions")
    )
    query = (
        totals.writeStream.format("memory")
        .queryName("changes_of_an_hour")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {row.hour: row for row in spark.table("changes_of_an_hour").collect()}
    per_hour = [found[number].changes if number in found else 0 for number in range(HOURS)]
    return Streamed(
        records=sum(row.changes for row in found.values()),
        deletions=sum(row.deletions for row in found.values()),
        micro_batches=sum(1 for progress in query.recentProgress if progress.numInputRows),
        per_hour=per_hour,
    )


def count_per_hour(spark: SparkSession, path: str) -> list[int]:
    """The same by a query over what is there now."""
    from pyspark.sql import functions as f

    records = spark.read.format("duralog").option("subscribe", TOPIC).option("columns", "timestamp").load(path)
    hour = f.floor((f.unix_millis("timestamp") - FIRST_MS) / HOUR_MS).cast("int").alias("hour")
    found = {row.hour: row["count"] for row in records.groupBy(hour).count().collect()}
    return [found.get(number, 0) for number in range(HOURS)]


def folder_bytes(path: str) -> int:
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)
