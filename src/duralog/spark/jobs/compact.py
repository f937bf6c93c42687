"""`compact`: the logs of compacted topics, each compacted by a Spark task of its own; very large ones by many.

The result is that of `store.compact`, byte for byte, `cleaner-offset-checkpoint` included. The driver holds the
directory's lock from the first to the last (`duralog.spark.jobs.holding`), so no broker may run on it; the directory is
on a disk that the driver and all executors share.

Two forms:
- One task for each partition (`compact_task`). It needs the memory of a map of keys, `memory_bytes`, for each task that
  runs at a time.
- Shuffled (`compact_shuffled`), for a partition whose new keys do not fit into that map. A store would take several
  rounds over the whole log; here it is always one.

Which form is chosen by what a task finds: one that meets more keys than its map takes gives up before it has changed
anything, and the partition is compacted in the other form when all others are done.

A partition that fails costs the others nothing. What dies in the middle leaves each group of segments old or new.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import InvalidConfig, UnknownTopic
from duralog.format.filenames import FileKind, FileState, parse_segment_file
from duralog.spark.jobs.compact_report import CompactJobReport, PartitionCompaction
from duralog.spark.jobs.compact_shuffled import compact_shuffled
from duralog.spark.jobs.compact_task import CompactSettings, CompactWork, compact_in_task
from duralog.spark.jobs.holding import HeldDirectory, hold
from duralog.spark.tasks import OnProgress, run_tasks
from duralog.storage.background import wall_clock_ms
from duralog.storage.file_system import LocalFileSystem
from duralog.storage.log_directory import TopicPartition
from duralog.storage.retention import COMPACT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LARGEST_MAP_BYTES = 2**31 - 1
_SMALLEST_MAP_BYTES = 1024


def compact(
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    topic_config: Mapping[str, object] | None = None,
    memory_bytes: int | None = None,
    shuffled: bool | None = None,
    again: bool = False,
    roll: bool = False,
    min_dirty_ratio: float | None = None,
    config: BrokerConfig | None = None,
    now_ms: int | None = None,
    on_progress: OnProgress | None = None,
) -> CompactJobReport:
    """Compact the chosen partitions now, however little of them is new.

    `topics` and `partition` choose; without them, all partitions of compacted topics are taken. `topic_config` is as if
    the topics had these configs, `config` what the broker's `server.properties` sets. `memory_bytes` is for the map of
    keys of one task; without it, `log.cleaner.dedupe.buffer.size`. With `shuffled`, every partition is compacted in
    that form; if it is False, none is. `again` takes the whole log as new, so that old tombstones go; `roll` begins a
    new segment first, so that all of a log is compacted. With `min_dirty_ratio`, logs of which no larger share is new
    are left as they are. `now_ms` is the time by which delete horizons are set and have passed.
    """
    began = time.monotonic()
    if memory_bytes is not None and memory_bytes < _SMALLEST_MAP_BYTES:
        raise InvalidConfig(f"memory_bytes: {memory_bytes} is not allowed, a map has at least {_SMALLEST_MAP_BYTES}")
    with hold(path, config=config) as held:
        chosen = choose(held, topics, partition, topic_config or {})
        settings = CompactSettings(
            now_ms=wall_clock_ms() if now_ms is None else now_ms,
            memory_bytes=_map_bytes(held.config) if memory_bytes is None else memory_bytes,
            again=again,
            roll=roll,
            min_dirty_ratio=min_dirty_ratio,
            workers=int(spark.sparkContext.getConf().get("spark.task.cpus", "1")),
            may_take_rounds=shuffled is False,
        )
        works = [
            CompactWork(
                loan=held.lend(found, config=found_config),
                settings=settings,
                size_bytes=log_bytes(held.directory.folder_of(found)),
            )
            for found, found_config in chosen.items()
        ]
        done: dict[TopicPartition, PartitionCompaction] = {}
        if not shuffled:
            done = _in_tasks(spark, works, on_progress)
        for work in works:
            if work.loan.partition not in done:
                done[work.loan.partition] = compact_shuffled(spark, work, on_progress)
    return CompactJobReport(
        path=path, partitions=[done[found] for found in sorted(done)], seconds=time.monotonic() - began
    )


def choose(
    held: HeldDirectory, topics: Collection[str] | None, partition: int | None, overrides: Mapping[str, object]
) -> dict[TopicPartition, TopicConfig]:
    """The chosen partitions that are compacted, and the configs that hold for each."""
    if overrides and topics is None:
        raise InvalidConfig("configs are of topics: say of which")
    known = {found.topic for found in (*held.partitions, *held.offline)}
    for topic in topics or ():
        if topic not in known:
            raise UnknownTopic(f"there is no topic {topic} in {held.path}")
    named = [
        found
        for found in held.partitions
        if (topics is None or found.topic in topics) and partition in (None, found.partition)
    ]
    if partition is not None and not named:
        raise UnknownTopic(f"{held.path}: there is no partition {partition} of {' or '.join(topics or ['any topic'])}")
    configs = {found: held.partitions[found].with_overrides(overrides) for found in named}
    chosen = {found: found_config for found, found_config in configs.items() if COMPACT in found_config.cleanup_policy}
    for topic in topics or ():
        others = [found for found in named if found.topic == topic and found not in chosen]
        if others:
            policy = configs[others[0]].text("cleanup.policy") or "empty"
            raise InvalidConfig(
                f"{topic} is not compacted, its cleanup.policy is {policy}: with a config of cleanup.policy=compact it"
                " is treated as if it were, for this run; records without a key are removed then"
            )
    return chosen


def log_bytes(folder: str) -> int:
    """Of all `.log` files."""
    sizes = 0
    for entry in LocalFileSystem().list(folder):
        file = parse_segment_file(entry.name)
        if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
            sizes += entry.size
    return sizes


def _in_tasks(
    spark: SparkSession, works: Sequence[CompactWork], on_progress: OnProgress | None
) -> dict[TopicPartition, PartitionCompaction]:
    """Without those that are too large for a task."""
    # Not `writes`: a second copy of a task waits for the first one, and then finds nothing to do.
    found = run_tasks(
        spark,
        works,
        compact_in_task,
        weight=lambda work: work.size_bytes,
        on_progress=on_progress,
        name="compact",
    )
    return {result.partition: result for result in found if result is not None}


def _map_bytes(config: BrokerConfig) -> int:
    size_bytes: int = config.log_cleaner_dedupe_buffer_size
    return min(size_bytes, _LARGEST_MAP_BYTES)
