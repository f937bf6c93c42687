"""`compact`: the logs of compacted topics, each compacted by one Spark task; very large ones by many.

The result is that of `store.compact`, byte for byte, `cleaner-offset-checkpoint` included. The driver holds the
directory's lock from the first to the last (`duralog.spark.jobs.holding`), so no broker may run on it; the directory is
on a disk that the driver and all executors share.

Two forms:
- One task for each partition (`compaction.task`), small ones together. It needs the memory of a map of keys,
  `memory_bytes`, for each task that runs at a time.
- Shuffled (`compaction.shuffled`), for a partition whose new keys do not fit into that map. A store would take several
  rounds over the whole log; here it is always one.

The first form is tried first: a task that finds more keys than fit into its map gives up before it has changed
anything, and the partition is compacted in the other form when all others are done.

A failed partition does not stop the others. If a task or the driver dies, each group of segments is old or new.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial as with_first
from typing import TYPE_CHECKING

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import InvalidConfig
from duralog.format.topic_partition import TopicPartition
from duralog.reports.compact import CompactionForm, CompactReport, PartitionCompaction
from duralog.scanning.executor import Executor, OnProgress, one_by_one, run_in_groups
from duralog.scanning.keyed_offsets import check_map_bytes
from duralog.spark.executor import SparkExecutor
from duralog.spark.jobs.chosen_partitions import choose_partitions, log_bytes
from duralog.spark.jobs.compaction.shuffled import compact_shuffled
from duralog.spark.jobs.compaction.task import (
    CompactSettings,
    CompactWork,
    Preview,
    PreviewWork,
    compact_in_task,
    preview_in_task,
)
from duralog.spark.jobs.holding import HeldDirectory, check_shared_directory, hold
from duralog.storage.compaction.settings import LARGEST_MAP_BYTES
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.retention import COMPACT
from duralog.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CompactJobReport = CompactReport
"""Its public name in `duralog.spark.jobs`."""


def compact(  # Public: its keyword arguments are the interface.
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
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> CompactReport:
    """Compact the chosen partitions now, also if little of them is new.

    `topics` and `partition` choose; without them, all partitions of compacted topics are taken. `topic_config` is as if
    the topics had these configs, `config` what the broker's `server.properties` sets. `memory_bytes` is for the map of
    keys of one task; without it, `log.cleaner.dedupe.buffer.size`. With `shuffled`, every partition is compacted in
    that form; if it is False, none is. `again` treats the whole log as new, so that old tombstones are removed; `roll`
    starts a new segment first, so that all of a log is compacted. With `min_dirty_ratio`, logs of which no larger share
    is new are skipped. `now_ms` is the time by which delete horizons are set and have passed. A `dry_run` reports what
    would be done; it changes nothing, takes no lock, and ignores `roll`.
    """
    began = time.monotonic()
    if memory_bytes is not None:
        check_map_bytes("memory_bytes", memory_bytes)
    settings = CompactSettings(
        now_ms=wall_clock_ms() if now_ms is None else now_ms,
        memory_bytes=0 if memory_bytes is None else memory_bytes,
        again=again,
        roll=roll,
        min_dirty_ratio=min_dirty_ratio,
        workers=int(spark.sparkContext.getConf().get("spark.task.cpus", "1")),
        may_take_rounds=shuffled is False,
    )
    executor = SparkExecutor(spark, on_progress)
    if dry_run:
        done = _preview(executor, path, topics, partition, topic_config or {}, settings, config)
    else:
        with hold(path, config=config) as held:
            named = choose_partitions((*held.partitions, *held.offline), topics, partition, held.path)
            chosen = _compacted(held.partitions, named, topics, topic_config or {})
            done = _compact(executor, held, chosen, _with_memory(settings, held.config), shuffled)
            done |= _offline(held, named, topic_config or {})
    return CompactReport(
        path=path,
        partitions=[done[found] for found in sorted(done)],
        seconds=time.monotonic() - began,
        is_rehearsal=dry_run,
    )


def _with_memory(settings: CompactSettings, config: BrokerConfig) -> CompactSettings:
    """By default, a map may have the memory of all cleaner threads together."""
    size_bytes = settings.memory_bytes or min(config.log_cleaner_dedupe_buffer_size, LARGEST_MAP_BYTES)
    return replace(settings, memory_bytes=size_bytes)


def _compact(
    executor: SparkExecutor,
    held: HeldDirectory,
    chosen: Mapping[TopicPartition, TopicConfig],
    settings: CompactSettings,
    shuffled: bool | None,
) -> dict[TopicPartition, PartitionCompaction]:
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
        # Not `writes`: a second copy of a task waits for the first one, and then finds nothing to do.
        found_in_tasks = run_in_groups(
            executor,
            works,
            one_by_one(compact_in_task),
            size_bytes=lambda work: work.size_bytes,
            name="compact",
        )
        done = {result.partition: result for result in found_in_tasks if result is not None}
    for work in works:
        if work.loan.partition not in done:
            done[work.loan.partition] = compact_shuffled(executor, work)
    return done


def _offline(
    held: HeldDirectory, named: Sequence[TopicPartition], overrides: Mapping[str, object]
) -> dict[TopicPartition, PartitionCompaction]:
    """Partitions that cannot be compacted. Those of topics that are not compacted do not count."""
    not_compacted = {
        topic
        for topic, found_config in held.topic_configs.items()
        if COMPACT not in found_config.with_overrides(overrides).cleanup_policy
    }
    return {
        found: PartitionCompaction(
            partition=found, form=CompactionForm.ONE_TASK, failure=f"it is offline: {held.offline[found]}"
        )
        for found in named
        if found in held.offline and found.topic not in not_compacted
    }


def _preview(
    executor: Executor,
    path: str,
    topics: Collection[str] | None,
    partition: int | None,
    overrides: Mapping[str, object],
    settings: CompactSettings,
    config: BrokerConfig | None,
) -> dict[TopicPartition, PartitionCompaction]:
    check_shared_directory(path)
    path = os.path.abspath(path)
    with Store(path, config=config, read_only=True) as store:
        there = {
            TopicPartition(topic, number): store.topic_config(topic)
            for topic in store.topics()
            for number in store.partitions(topic)
        }
        named = choose_partitions(there, topics, partition, path)
        directory = LogDirectory(LocalFileSystem(), path)
        works = [
            PreviewWork(partition=found, topic_config=found_config, size_bytes=log_bytes(directory.folder_of(found)))
            for found, found_config in _compacted(there, named, topics, overrides).items()
        ]
        preview = Preview(
            path=path, broker_config=config or BrokerConfig(), settings=_with_memory(settings, store.config)
        )
    results = run_in_groups(
        executor,
        works,
        with_first(preview_in_task, preview),
        size_bytes=lambda work: work.size_bytes,
        name="compact",
    )
    return {result.partition: result for result in results}


def _compacted(
    there: Mapping[TopicPartition, TopicConfig],
    named: Sequence[TopicPartition],
    topics: Collection[str] | None,
    overrides: Mapping[str, object],
) -> dict[TopicPartition, TopicConfig]:
    """Of the named partitions those that are compacted, and the configs that hold for each."""
    if overrides and topics is None:
        raise InvalidConfig("a config needs the topics that it is for: name them")
    configs = {found: there[found].with_overrides(overrides) for found in named if found in there}
    chosen = {found: found_config for found, found_config in configs.items() if COMPACT in found_config.cleanup_policy}
    for found in configs if topics is not None else ():
        if found not in chosen:
            policy = configs[found].text("cleanup.policy") or "empty"
            raise InvalidConfig(
                f"{found.topic} is not compacted, its cleanup.policy is {policy}: with a config of"
                " cleanup.policy=compact it is treated as if it were, for this run; records without a key are removed"
                " then"
            )
    return chosen
