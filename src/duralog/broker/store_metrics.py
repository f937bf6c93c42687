"""The metrics of the store and its topics for Prometheus: sizes, rates, flushes, the cleaner, and the lag of groups.

The number of series is bounded: a fixed number of topics, the largest ones, has series of its own. The sizes of the
others are added up under an empty topic, and so are the smallest lags of groups. Counters are not: the sum would jump
when another topic becomes one of the largest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from duralog.broker.groups.offsets.table import TopicOffsets
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.flush_times import FLUSH_BUCKETS_SECONDS, FlushTimes
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

MOST_TOPICS = 200
MOST_LAGS = 2_000


def of_store(store: Store, fetched_bytes: Mapping[str, int] | None) -> Iterator[Metric]:
    """From any thread. `fetched_bytes` are those of fetch answers, by topic; None if they are unknown."""
    # Not by `Store.partition`: a scrape must not wait for changes of topics or create missing logs.
    found: dict[str, list[PartitionLog]] = {}
    partitions = offline = 0
    for name in store.topics():
        topic = store.find_topic(name)
        if topic is None:
            continue  # It was deleted meanwhile.
        logs = [store.logs.get(TopicPartition(name, number)) for number in topic.partitions]
        partitions += len(logs)
        offline += logs.count(None)
        found[name] = [log for log in logs if log is not None]
    yield gauge("topics", "Topics.", len(found))
    yield gauge("partitions", "Partitions.", partitions)
    yield gauge("offline_partitions", "Partitions that could not be loaded or created.", offline)
    failed = sum(directory.failure is not None for directory in store.log_directories)
    yield gauge("offline_log_directories", "Log directories whose disks have failed.", failed)
    yield from _of_topics(found, fetched_bytes)
    yield _of_flushes(store.flush_times)
    held = store.held
    yield gauge(
        "held_records",
        "Records that were due at the start, and that the default retention does not delete.",
        sum(topic.records for topic in held),
    )
    yield gauge("held_bytes", "Bytes of the held records.", sum(topic.size_bytes for topic in held))
    yield gauge(
        "background_errors",
        "The background failures that are remembered, such as of flushes and compactions.",
        len(store.background_errors),
    )
    yield counter("background_failures", "All background failures so far.", store.background_error_count)
    yield from _of_cleaner(store)


def _of_topics(found: Mapping[str, list[PartitionLog]], fetched_bytes: Mapping[str, int] | None) -> Iterator[Metric]:
    sizes = Counter({name: sum(log.size_bytes for log in logs) for name, logs in found.items()})
    largest = dict(sizes.most_common(MOST_TOPICS))
    size = GaugeMetricFamily("duralog_log_bytes", "Bytes of the logs.", labels=["topic"])
    for name, value in largest.items():
        size.add_metric([name], value)
    size.add_metric([""], sizes.total() - sum(largest.values()))
    yield size
    appended = CounterMetricFamily("duralog_appended_bytes", "Bytes that were appended to the logs.", labels=["topic"])
    offsets = CounterMetricFamily(
        "duralog_end_offsets", "The end offsets of all partitions, added up: the rate of records.", labels=["topic"]
    )
    fetched = CounterMetricFamily("duralog_fetched_bytes", "Bytes of records that clients fetched.", labels=["topic"])
    for name in largest:
        appended.add_metric([name], sum(log.appended_bytes for log in found[name]))
        offsets.add_metric([name], sum(log.end_offset for log in found[name]))
        if fetched_bytes is not None:
            fetched.add_metric([name], fetched_bytes.get(name, 0))
    yield from (appended, offsets, fetched)


def _of_flushes(times: FlushTimes) -> Metric:
    bounds = [*(str(bound) for bound in FLUSH_BUCKETS_SECONDS), "+Inf"]
    family = HistogramMetricFamily("duralog_flush_seconds", "How long flushes of a log took.")
    family.add_metric([], list(zip(bounds, accumulate(times.buckets), strict=True)), times.seconds)
    return family


def _of_cleaner(store: Store) -> Iterator[Metric]:
    totals = store.cleaner.totals()
    yield counter("cleanings", "Compactions that were completed.", totals.cleanings)
    yield counter("failed_cleanings", "Compactions that failed.", totals.failed_cleanings)
    yield gauge("cleaner_dirty_percent", "The dirty ratio of the dirtiest log.", totals.max_dirty_percent)
    yield gauge("cleaner_backlog_bytes", "Bytes that could be compacted now.", totals.cleanable_bytes)
    yield gauge("cleaner_seconds", "The duration of the longest of the last compactions.", totals.max_clean_time_secs)
    yield gauge(
        "uncleanable_partitions", "Partitions whose last compaction failed.", totals.uncleanable_partitions_count
    )
    yield gauge(
        "uncleanable_bytes", "Bytes of uncleanable partitions that could be compacted.", totals.uncleanable_bytes
    )


def of_lag(store: Store, committed: Mapping[str, TopicOffsets]) -> Metric:
    """The records after each committed offset. Of a deleted topic there is none."""
    lags: Counter[tuple[str, str, str]] = Counter()
    for group, topics in committed.items():
        for topic, offsets in topics.items():
            for partition, found in offsets.items():
                log = store.logs.get(TopicPartition(topic, partition))
                if log is not None:
                    lags[group, topic, str(partition)] = max(0, log.end_offset - found.offset)
    family = GaugeMetricFamily(
        "duralog_group_lag",
        "Offsets between what a group has committed and the end of the log; the smallest ones of many are added up.",
        labels=["group", "topic", "partition"],
    )
    largest = lags.most_common(MOST_LAGS)
    for labels, lag in largest:
        family.add_metric(list(labels), lag)
    if len(lags) > len(largest):
        family.add_metric(["", "", ""], lags.total() - sum(lag for _, lag in largest))
    return family


def gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(f"duralog_{name}", doc, value=value)


def counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(f"duralog_{name}", doc, value=value)
