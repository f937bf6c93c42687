"""`stats` on threads of this process: the same figures and the same report, no Spark and no Java.

    duralog.stats("data", prefix_separator=":")

With `hot_keys`, the report also has what charts are drawn from (`StatsReport.shapes`). Memory is bounded by the number
of threads: a partition with more keys than fit is read several times, a share of its keys at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from duralog.scanning.cluster.directories import Paths
from duralog.scanning.executor import OnProgress
from duralog.scanning.logs import LogSet
from duralog.scanning.thread_executor import ThreadExecutor
from duralog.statistics.collection import StatsRequest, collect
from duralog.statistics.key_prefixes import PrefixRule
from duralog.statistics.report import StatsReport

DEFAULT_THREADS = 2
DEFAULT_MAP_BYTES = 128 << 20
_SLICE_BYTES = 32 << 20


def stats_on_threads(  # Public: its keyword arguments are the interface.
    path: Paths,
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
    """Count records, keys and bytes of topics: all but the internal ones if none are named.

    A list of directories, a glob or a manifest is a cluster: what consumers were served is counted.

    `partition` picks one number of each topic. A prefix is the first `prefix_length` bytes of a key, or what comes
    before `prefix_separator`. `largest` is how many of the largest records are reported, `hot_keys` how many of the
    most frequent keys. With `compaction`, the report has what a compaction would save. `map_bytes` is the memory that
    a thread has for keys.
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
    with LogSet.of(path).open() as logs:
        return collect(logs, request, ThreadExecutor(threads, on_progress))
