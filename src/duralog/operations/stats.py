"""Count the records, keys and bytes of the topics of a directory, and what a compaction would save.

Nothing is changed, and the directory may be in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.config.progress import OnProgress, ignore
from duralog.operations.chosen_partition import EVERYTHING, Choice
from duralog.operations.workers import TWO_THREADS, OnSpark, Workers
from duralog.statistics.on_threads import stats_on_threads
from duralog.statistics.report import StatsReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStats:
    """A request."""

    path: str
    """Of the log directory. On Spark also the URL of an object store."""
    choice: Choice = EVERYTHING
    """By topic. A partition can only be chosen on threads."""
    prefix_length: int | None = None
    """Also count by the first bytes of the key."""
    prefix_separator: str | None = None
    """Also count by the part of the key before this separator."""
    largest: int = 5
    """How many of the largest records are listed."""
    hot_keys: int = 0
    """How many of the most frequent keys are listed, for charts. On threads only."""
    compaction: bool = True
    """Also count what a compaction would save."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    """Of an object store."""


def stats(request: DirectoryStats, workers: Workers = TWO_THREADS, *, on_progress: OnProgress = ignore) -> StatsReport:
    topics = None if request.choice.topics is None else list(request.choice.topics)
    if isinstance(workers, OnSpark):
        from duralog.spark.jobs.stats import stats as run

        return run(
            workers.session,
            request.path,
            topics=topics,
            prefix_length=request.prefix_length,
            prefix_separator=request.prefix_separator,
            largest=request.largest,
            compaction=request.compaction,
            storage_options=request.storage_options,
            on_progress=on_progress,
        )
    return stats_on_threads(
        request.path,
        topics=topics,
        partition=request.choice.partition,
        prefix_length=request.prefix_length,
        prefix_separator=request.prefix_separator,
        largest=request.largest,
        hot_keys=request.hot_keys,
        compaction=request.compaction,
        threads=workers.count,
        on_progress=on_progress,
    )
