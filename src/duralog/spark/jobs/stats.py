"""What is in the topics of a log directory: by topic, by partition and by the prefix of the key.

    stats(spark, "data", prefix_separator=":").frame(spark).show()

All figures are exact. Everything that lies in the log counts, data of aborted transactions too, since it takes room;
the log's own control batches count as batches and bytes. Keys are equal if their digests are, as in compaction, and are
compared within a partition: `duplicate_records` are those that a later one of the same partition makes obsolete.

What compaction would save is what `duralog compact --explain` says: of what the cleaner would take up now, how many
records and bytes would go. It is told of compacted topics only.

Damaged batches are told, and nothing of them is counted. The log may be in use.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.spark.jobs.distinct_keys import KeysTask, count_keys, count_shuffled_keys
from duralog.spark.jobs.key_prefixes import PrefixRule
from duralog.spark.jobs.key_shuffle import slices_by_task
from duralog.spark.jobs.record_counts import Counts, count_slices
from duralog.spark.jobs.stats_report import (
    CompactionSaving,
    Figures,
    LogFigures,
    StatsReport,
    log_figures,
    prefix_figures,
    topic_figures,
)
from duralog.spark.jobs.topic_choice import partitions_by_topic
from duralog.spark.lake.tables import now_ms
from duralog.spark.locations import Location, location_of, open_store
from duralog.spark.planning import Plan, plan, resolve
from duralog.spark.tasks import OnProgress, run_tasks
from duralog.storage.cleaner_settings import CleanerSettings
from duralog.storage.compaction_preview import ExplainSettings, explain_compaction
from duralog.storage.log_directory import LogDirectory, TopicPartition
from duralog.storage.retention import COMPACT

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
    began = time.perf_counter()
    rule = PrefixRule.of(prefix_length, prefix_separator)
    with open_store(path, storage_options or {}) as store:
        chosen = partitions_by_topic(store, topics)
        partitions = [partition for found in chosen.values() for partition in found]
        ranges = resolve(store, partitions)
        planned = plan(store, ranges, max_slice_bytes=max_slice_bytes)
        compacted = {topic for topic in chosen if COMPACT in store.topic_config(topic).cleanup_policy}
        location = location_of(store)
    counts = _count(spark, partitions, planned, rule, largest, max_slice_bytes, on_progress)
    distinct = _distinct(spark, planned, rule, counts, map_bytes, on_progress)
    savings: dict[TopicPartition, CompactionSaving] = {}
    if compaction:
        wanted = [partition for partition in partitions if partition.topic in compacted]
        found = run_tasks(
            spark, wanted, partial(saving_of, location), on_progress=on_progress, name="stats: compaction"
        )
        savings = dict(zip(wanted, found, strict=True))
    rows = [
        log_figures(
            topic=partition.topic,
            partition=partition.partition,
            offsets=ranges[partition],
            counts=counts[partition],
            distinct=sum(distinct[partition].values()),
            is_compacted=partition.topic in compacted,
            saving=savings.get(partition),
        )
        for partition in partitions
    ]
    return StatsReport(
        topics=tuple(topic_figures(topic, rows, counts, largest) for topic in chosen),
        partitions=tuple(rows),
        prefixes=tuple(
            prefix_figures(partition, prefix, of_prefix, distinct[partition].get(prefix, 0))
            for partition in partitions
            for prefix, of_prefix in sorted(counts[partition].prefixes.items(), key=lambda item: item[0] or b"")
        ),
        read_bytes=planned.planned_bytes,
        seconds=time.perf_counter() - began,
    )


def _count(
    spark: SparkSession,
    partitions: Sequence[TopicPartition],
    planned: Plan,
    rule: PrefixRule | None,
    largest: int,
    max_slice_bytes: int,
    on_progress: OnProgress | None,
) -> dict[TopicPartition, Counts]:
    tasks = [
        slices
        for _, found in groupby(planned.slices, key=lambda found: (found.topic, found.partition))
        for slices in slices_by_task(found, max_slice_bytes)
    ]
    counted = run_tasks(
        spark,
        tasks,
        partial(count_slices, rule=rule, largest=largest),
        weight=lambda slices: sum(found.size_bytes for found in slices),
        on_progress=on_progress,
        name="stats: records",
    )
    totals = {partition: Counts() for partition in partitions}
    for slices, counts in zip(tasks, counted, strict=True):
        totals[TopicPartition(slices[0].topic, slices[0].partition)].add(counts, largest)
    return totals


def _distinct(
    spark: SparkSession,
    planned: Plan,
    rule: PrefixRule | None,
    counts: Mapping[TopicPartition, Counts],
    map_bytes: int,
    on_progress: OnProgress | None,
) -> dict[TopicPartition, dict[bytes | None, int]]:
    """By partition: how many keys there are with each prefix, with None if there are no prefixes."""
    prefixes: list[bytes | None] = [None]
    prefixes += sorted({prefix for found in counts.values() for prefix in found.prefixes if prefix is not None})
    numbers = {prefix: number for number, prefix in enumerate(prefixes)}
    tasks = {}
    for (topic, number), slices in groupby(planned.slices, key=lambda found: (found.topic, found.partition)):
        partition = TopicPartition(topic, number)
        of_partition = counts[partition]
        tasks[partition] = KeysTask(
            slices=tuple(slices),
            rule=rule,
            numbers={prefix: numbers[prefix] for prefix in of_partition.prefixes},
            most_keys=of_partition.records - of_partition.keyless_records,
            map_bytes=map_bytes,
        )
    found = run_tasks(
        spark,
        list(tasks.values()),
        count_keys,
        weight=lambda task: task.size_bytes,
        on_progress=on_progress,
        name="stats: keys",
    )
    distinct: dict[TopicPartition, dict[bytes | None, int]] = {partition: {} for partition in counts}
    for (partition, task), in_task in zip(tasks.items(), found, strict=True):
        by_number = count_shuffled_keys(spark, task) if in_task is None else in_task
        distinct[partition] = {prefixes[number]: count for number, count in by_number.items()}
    return distinct


def saving_of(location: Location, partition: TopicPartition) -> CompactionSaving:
    """What a compaction of the partition would save now, by the cleaner's own rules."""
    files, path = location.connect()
    # Before the log: the checkpoint must not be ahead of what is read.
    checkpoint = LogDirectory(files, path).read_checkpoint(CLEANER_OFFSET_CHECKPOINT).get(partition)
    with location.open_store() as store:
        cleaner = CleanerSettings.of(store.config)
        settings = ExplainSettings(now_ms=now_ms(), memory_bytes=cleaner.memory_bytes, load_factor=cleaner.load_factor)
        report = explain_compaction(store.partition(*partition), checkpoint, settings).report
    if report is None:
        return CompactionSaving(records=0, size_bytes=0)
    return CompactionSaving(
        records=report.records_before - report.records_after, size_bytes=report.bytes_before - report.bytes_after
    )
