"""What is in the topics of a log directory: by topic, by partition and by the prefix of the key.

    stats(spark, "data", prefix_separator=":").frame(spark).show()

All figures are exact; `duralog.statistics.collection` says what counts. Damaged batches are reported, and nothing of
them is counted. The log may be in use. `duralog.stats` does the same on threads of this process, without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from duralog.scanning.cluster.directories import Paths
from duralog.scanning.executor import Executor, OnProgress
from duralog.scanning.keyed_offsets import check_map_bytes
from duralog.scanning.logs import LogSet
from duralog.scanning.slices import slices_by_task
from duralog.spark.executor import SparkExecutor, task_failure
from duralog.spark.jobs.key_shuffle import keys_frame, last_marks
from duralog.statistics.collection import StatsRequest, collect
from duralog.statistics.distinct_keys import KEYS_RUN, KeyCounts, KeysTask, count_keys, numbered_keys
from duralog.statistics.key_prefixes import PrefixRule
from duralog.statistics.report import Figures, LogFigures, StatsReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Figures", "LogFigures", "StatsReport", "stats"]

DEFAULT_MAP_BYTES = 256 << 20


def stats(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: Paths,
    *,
    topics: Sequence[str] | None = None,
    prefix_length: int | None = None,
    prefix_separator: str | bytes | None = None,
    largest: int = 5,
    compaction: bool = True,
    map_bytes: int = DEFAULT_MAP_BYTES,
    max_slice_bytes: int = 128 << 20,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> StatsReport:
    """Count records, keys and bytes of topics: all but the internal ones if none are named.

    A list of directories, a glob or a manifest is a cluster: what consumers were served is counted.

    A prefix is the first `prefix_length` bytes of a key, or what comes before `prefix_separator`. `largest` is how many
    of the largest records are reported. With `compaction`, the report has what a compaction would save. `map_bytes` is
    the memory that a task has for keys; a partition with more is shuffled.
    """
    check_map_bytes("map_bytes", map_bytes)
    request = StatsRequest(
        topics=topics,
        prefix=PrefixRule.of(prefix_length, prefix_separator),
        largest=largest,
        compaction=compaction,
        map_bytes=map_bytes,
        max_slice_bytes=max_slice_bytes,
    )
    with LogSet.of(path, storage_options).open() as logs:
        return collect(logs, request, SparkExecutor(spark, on_progress), partial(_count_keys, spark))


def _count_keys(spark: SparkSession, executor: Executor, tasks: Sequence[KeysTask]) -> list[KeyCounts]:
    found = executor.run(tasks, count_keys, weight=lambda task: task.size_bytes, name=KEYS_RUN)
    return [
        KeyCounts(_count_shuffled_keys(spark, task)) if counts is None else counts
        for task, counts in zip(tasks, found, strict=True)
    ]


def _count_shuffled_keys(spark: SparkSession, task: KeysTask) -> dict[int, int]:
    """With the memory of all executors. Returns how many keys there are, by the number of their prefix."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    sources = slices_by_task(task.slices)

    def batches_of(number: int) -> Iterator[pa.RecordBatch]:
        chunks = (found.chunk for found in numbered_keys(task, sources[number]))
        return last_marks(number, chunks, task.map_bytes)

    keys = keys_frame(spark, len(sources), batches_of)
    distinct = keys.groupBy("high", "low").agg(functions.max("mark").alias("mark"))
    try:
        return {row.mark: row["count"] for row in distinct.groupBy("mark").count().collect()}
    except PySparkException as error:
        raise task_failure("stats", error) from error
