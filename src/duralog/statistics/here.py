"""`stats` on threads of this process: the same figures and the same report, no Spark and no Java.

    duralog.stats("data", prefix_separator=":")

With `hot_keys`, the report also has what charts are drawn from (`StatsReport.shapes`). Memory is bounded by the number
of threads: a partition with more keys than fit is read several times, a share of its keys at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duralog.scanning.locations import Location, open_store
from duralog.spark.tasks import OnProgress
from duralog.statistics.collection import StatsRequest, collect, open_savings
from duralog.statistics.distinct_keys import KeyCounts, KeysTask, count_keys_in_shares
from duralog.statistics.key_prefixes import PrefixRule
from duralog.statistics.report import CompactionSaving, StatsReport
from duralog.statistics.thread_tasks import run_in_threads
from duralog.storage.disk.log_directory import TopicPartition

DEFAULT_THREADS = 2
DEFAULT_MAP_BYTES = 128 << 20
_SLICE_BYTES = 32 << 20


def stats_here(
    path: str | os.PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    partition: int | None = None,
    prefix_length: int | None = None,
    prefix_separator: str | bytes | None = None,
    largest: int = 5,
    hot_keys: int = 0,
    compaction: bool = True,
    threads: int = DEFAULT_THREADS,
    map_bytes: int = DEFAULT_MAP_BYTES,
    on_progress: OnProgress | None = None,
) -> StatsReport:
    """Look at the topics, all but the internal ones if none are named, or at the partitions with this number.

    A prefix is the first `prefix_length` bytes of a key, or what comes before `prefix_separator`. `largest` is how many
    of the largest records are told, `hot_keys` how many of the keys that come most. Without `compaction`, what it would
    save is not looked for. `map_bytes` is the memory that a thread has for keys.
    """
    request = StatsRequest(
        topics=topics,
        partition=partition,
        prefix=PrefixRule.of(prefix_length, prefix_separator),
        largest=largest,
        compaction=compaction,
        map_bytes=map_bytes,
        max_slice_bytes=_SLICE_BYTES,
        hot_keys=hot_keys,
    )
    with open_store(os.fspath(path)) as store:
        return collect(store, request, _Threads(threads, on_progress))


class _Threads:
    def __init__(self, threads: int, on_progress: OnProgress | None) -> None:
        self._threads = threads
        self._on_progress = on_progress

    def run(
        self,
        items: Sequence[Any],
        function: Callable[..., Any],
        *,
        weight: Callable[[Any], int] | None = None,
        name: str,
    ) -> list[Any]:
        return run_in_threads(
            items, function, threads=self._threads, weight=weight, on_progress=self._on_progress, name=name
        )

    def count_keys(self, tasks: Sequence[KeysTask]) -> list[KeyCounts]:
        return self.run(tasks, count_keys_in_shares, weight=lambda task: task.size_bytes, name="stats: keys")

    def savings(
        self, location: Location, sizes: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, CompactionSaving]:
        if not sizes:
            return {}
        with open_savings(location) as saving:
            found = self.run(list(sizes), lambda partition, _: saving(partition), name="stats: compaction")
        return dict(zip(sizes, found, strict=True))
