"""What is in the topics of a log directory: by topic, by partition and by the prefix of the key.

    stats(spark, "data", prefix_separator=":").frame(spark).show()

All figures are exact; `stats_collection` tells what counts. Damaged batches are told, and nothing of them is counted.
The log may be in use. `stats_here` does the same on threads of this process, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from duralog.scanning.locations import Location, open_store
from duralog.spark.jobs.task_sizes import check_map_bytes, run_in_groups
from duralog.spark.tasks import OnProgress, run_tasks
from duralog.statistics.collection import StatsRequest, collect, open_savings
from duralog.statistics.distinct_keys import KeyCounts, KeysTask, count_keys, count_shuffled_keys
from duralog.statistics.key_prefixes import PrefixRule
from duralog.statistics.report import CompactionSaving, Figures, LogFigures, StatsReport
from duralog.storage.disk.log_directory import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Figures", "LogFigures", "StatsReport", "stats"]

DEFAULT_MAP_BYTES = 256 << 20


def stats(
    spark: SparkSession,
    path: str,
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
    """Look at the topics, all but the internal ones if none are named.

    A prefix is the first `prefix_length` bytes of a key, or what comes before `prefix_separator`. `largest` is how many
    of the largest records are told. Without `compaction`, what it would save is not looked for. `map_bytes` is the
    memory that a task has for keys; a partition with more is shuffled.
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
    with open_store(path, storage_options or {}) as store:
        return collect(store, request, _Executors(spark, on_progress))


class _Executors:
    """Spark's."""

    def __init__(self, spark: SparkSession, on_progress: OnProgress | None) -> None:
        self._spark = spark
        self._on_progress = on_progress

    def run(
        self,
        items: Sequence[Any],
        function: Callable[..., Any],
        *,
        weight: Callable[[Any], int] | None = None,
        name: str,
    ) -> list[Any]:
        return run_tasks(self._spark, items, function, weight=weight, on_progress=self._on_progress, name=name)

    def count_keys(self, tasks: Sequence[KeysTask]) -> list[KeyCounts]:
        found = self.run(tasks, count_keys, weight=lambda task: task.size_bytes, name="stats: keys")
        return [
            KeyCounts(count_shuffled_keys(self._spark, task)) if counts is None else counts
            for task, counts in zip(tasks, found, strict=True)
        ]

    def savings(
        self, location: Location, sizes: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, CompactionSaving]:
        found = run_in_groups(
            self._spark,
            list(sizes),
            partial(_savings, location),
            size_bytes=sizes.__getitem__,
            on_progress=self._on_progress,
            name="stats: compaction",
        )
        return dict(zip(sizes, found, strict=True))


def _savings(location: Location, partitions: Sequence[TopicPartition]) -> list[CompactionSaving]:
    with open_savings(location) as saving:
        return [saving(partition) for partition in partitions]
