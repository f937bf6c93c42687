"""Counts the contents of the topics of a log directory, on threads or on Spark (`duralog.scanning.executor`).

For the directories of a cluster, the records that consumers were served are counted, and damaged batches are read from
other copies; the savings of a compaction are those of the copies that are read.

Everything in the log counts, data of aborted transactions too, since it takes disk space; the log's own control batches
count as batches and bytes. What cannot be read is reported as damage of its partition, and does not stop the others.
Keys are equal if their digests are, as in compaction, and are compared within a partition: `duplicate_records` are
those that a later record of the same partition makes obsolete.

Records are read twice, for counts and for keys. Records that retention deletes before are not counted; a record that it
deletes in between, without a later one of its key, counts as a duplicate.

What compaction would save is what `duralog compact --explain` reports: how many records and bytes a compaction would
remove now. It is reported for compacted topics only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from duralog.errors import DuralogError
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.executor import Advance, Executor, run_in_groups
from duralog.scanning.locations import Location
from duralog.scanning.logs import AnyPlan, Logs
from duralog.scanning.remote_work import side_by_side
from duralog.scanning.slices import slices_by_task
from duralog.scanning.topic_choice import partitions_by_topic
from duralog.statistics.distinct_keys import KeyCounts, KeysTask, count_keys_in_tasks
from duralog.statistics.key_prefixes import PrefixRule
from duralog.statistics.record_counts import CountRules, RecordCounts, count_slices
from duralog.statistics.report import (
    CompactionSaving,
    StatsReport,
    log_figures,
    prefix_figures,
    topic_figures,
)
from duralog.statistics.shapes import SegmentSizes, segment_sizes, topic_shape
from duralog.storage.compaction.preview import ExplainSettings, explain_compaction
from duralog.storage.compaction.settings import CleanerSettings
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.retention import COMPACT

CountKeys = Callable[[Executor, Sequence[KeysTask]], list[KeyCounts]]
"""Counts the keys of each task, also if they do not fit into the memory of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsRequest:
    topics: Sequence[str] | None
    """None for all but the internal ones."""
    partition: int | None = None
    prefix: PrefixRule | None = None
    largest: int = 5
    compaction: bool = True
    map_bytes: int
    """Of a task, for keys."""
    max_slice_bytes: int
    hot_keys: int = 0
    """How many of the most frequent keys are named for each topic. With 0, there is nothing to draw charts from."""


def collect(
    logs: Logs, request: StatsRequest, executor: Executor, count_keys: CountKeys = count_keys_in_tasks
) -> StatsReport:
    """Read the chosen topics and count."""
    began = time.perf_counter()
    chosen = partitions_by_topic(logs, request.topics, request.partition)
    closed = _closed(logs, [partition for found in chosen.values() for partition in found])
    readable = {topic: [partition for partition in found if partition not in closed] for topic, found in chosen.items()}
    partitions = [partition for found in readable.values() for partition in found]
    ranges = logs.resolve(partitions)
    planned = logs.plan(ranges, max_slice_bytes=request.max_slice_bytes)
    compacted = {topic for topic in chosen if COMPACT in logs.topic_config(topic).cleanup_policy}
    segments: dict[TopicPartition, SegmentSizes] = {}
    if request.hot_keys:
        checkpoints = {location: read_checkpoints(location) for location in set(map(logs.location, partitions))}
        segments = {
            partition: segment_sizes(
                logs.log(partition),
                partition.topic in compacted,
                checkpoints[logs.location(partition)].get(partition),
            )
            for partition in partitions
        }
    counts = _count(partitions, planned, request, executor)
    tasks, prefixes = _key_tasks(planned, request, counts)
    keys = {partition: KeyCounts() for partition in partitions}
    keys |= zip(tasks, count_keys(executor, list(tasks.values())), strict=True)
    savings: Mapping[TopicPartition, CompactionSaving] = {}
    if request.compaction:
        whole = [partition for partition in partitions if not counts[partition].unread]
        sizes = {found: counts[found].disk_bytes for found in whole if found.topic in compacted}
        homes = {found: logs.location(found) for found in sizes}
        found_savings = run_in_groups(
            executor,
            list(homes.items()),
            _savings,
            size_bytes=lambda item: sizes[item[0]],
            name="stats: compaction",
        )
        savings = dict(zip(sizes, found_savings, strict=True))
    unread = {found for of_partition in counts.values() for found in of_partition.unread}
    counts |= {partition: RecordCounts(damage=[reason]) for partition, reason in closed.items()}
    rows = [
        log_figures(
            topic=partition.topic,
            partition=partition.partition,
            offsets=ranges.get(partition, (0, 0)),
            counts=counts[partition],
            distinct=sum(keys[partition].by_number.values()) if partition in keys else 0,
            is_compacted=partition.topic in compacted,
            saving=savings.get(partition),
        )
        for found in chosen.values()
        for partition in found
    ]
    shapes = {}
    if request.hot_keys:
        shapes = {
            topic: topic_shape(
                logs,
                [counts[partition] for partition in found],
                [keys[partition].popularity for partition in found],
                [segments[partition] for partition in found],
                topic,
                request.hot_keys,
            )
            for topic, found in readable.items()
        }
    return StatsReport(
        topics=tuple(topic_figures(topic, rows, counts, request.largest) for topic in chosen),
        partitions=tuple(rows),
        prefixes=tuple(
            prefix_figures(partition, prefix, of_prefix, keys[partition].by_number.get(prefixes[prefix], 0))
            for partition in partitions
            for prefix, of_prefix in sorted(counts[partition].prefixes.items(), key=lambda item: item[0] or b"")
        ),
        read_bytes=sum(found.size_bytes for found in planned.slices if found not in unread),
        seconds=time.perf_counter() - began,
        shapes=shapes,
    )


def _closed(logs: Logs, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
    """Those that cannot be opened, and why: no permission, or the folder does not name its topic."""
    found = zip(partitions, side_by_side(logs.refusal, partitions, is_remote=logs.is_remote), strict=True)
    return {partition: reason for partition, reason in found if reason is not None}


def _count(
    partitions: Sequence[TopicPartition], planned: AnyPlan, request: StatsRequest, executor: Executor
) -> dict[TopicPartition, RecordCounts]:
    tasks = [
        slices
        for _, found in groupby(planned.slices, key=lambda found: (found.topic, found.partition))
        for slices in slices_by_task(found, request.max_slice_bytes)
    ]
    rules = CountRules(prefix=request.prefix, largest=request.largest, shapes=request.hot_keys > 0)
    counted = executor.run(
        tasks,
        partial(count_slices, rules=rules),
        weight=lambda slices: sum(found.size_bytes for found in slices),
        name="stats: records",
    )
    totals = {partition: RecordCounts() for partition in partitions}
    for slices, counts in zip(tasks, counted, strict=True):
        totals[TopicPartition(slices[0].topic, slices[0].partition)].add(counts, request.largest)
    return totals


def _key_tasks(
    planned: AnyPlan, request: StatsRequest, counts: Mapping[TopicPartition, RecordCounts]
) -> tuple[dict[TopicPartition, KeysTask], dict[bytes | None, int]]:
    """By partition: a task that counts its keys. And the numbers of the prefixes, 0 for no prefix."""
    prefixes: list[bytes | None] = [None]
    prefixes += sorted({prefix for found in counts.values() for prefix in found.prefixes if prefix is not None})
    numbers = {prefix: number for number, prefix in enumerate(prefixes)}
    tasks = {}
    for (topic, number), slices in groupby(planned.slices, key=lambda found: (found.topic, found.partition)):
        partition = TopicPartition(topic, number)
        of_partition = counts[partition]
        tasks[partition] = KeysTask(
            slices=tuple(found for found in slices if found not in of_partition.unread),
            rule=request.prefix,
            numbers={prefix: numbers[prefix] for prefix in of_partition.prefixes},
            most_keys=of_partition.records - of_partition.keyless_records,
            map_bytes=request.map_bytes,
            frequent=request.hot_keys,
        )
    return tasks, numbers


def _savings(items: Sequence[tuple[TopicPartition, Location]], advance: Advance) -> list[CompactionSaving]:
    """What a compaction of each partition would save now, by the cleaner's own rules."""
    savings: list[CompactionSaving] = []
    for location, found in groupby(items, key=lambda item: item[1]):
        savings += _savings_in(location, [partition for partition, _ in found], advance)
    return savings


def _savings_in(
    location: Location, partitions: Sequence[TopicPartition], advance: Advance
) -> Iterator[CompactionSaving]:
    # Before the logs: a checkpoint must not be ahead of what is read.
    checkpoints = read_checkpoints(location)
    with location.open_store() as store:
        cleaner = CleanerSettings.of(store.config)
        for partition in partitions:
            try:
                saving = _saving_in(store.partition(*partition), checkpoints.get(partition), cleaner)
            except DuralogError:
                # Its segments may have been replaced since their names were read: open the log again.
                checkpoint = read_checkpoints(location).get(partition)
                with location.open_store() as as_it_is_now:
                    saving = _saving_in(as_it_is_now.partition(*partition), checkpoint, cleaner)
            yield saving
            advance(0)  # Nothing is counted, but this is where a run that has failed stops.


def _saving_in(log: PartitionLog, checkpoint: int | None, cleaner: CleanerSettings) -> CompactionSaving:
    settings = ExplainSettings(now_ms=wall_clock_ms(), compaction=cleaner.compaction)
    report = explain_compaction(log, checkpoint, settings).report
    if report is None:
        return CompactionSaving(records=0, size_bytes=0)
    return CompactionSaving(
        records=report.records_before - report.records_after, size_bytes=report.bytes_before - report.bytes_after
    )


def read_checkpoints(location: Location) -> Mapping[TopicPartition, int]:
    """Up to where the cleaner has compacted each log."""
    files, path = location.connect()
    return LogDirectory(files, path).read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
