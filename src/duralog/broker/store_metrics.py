"""The metrics of the store and its topics for Prometheus: sizes, rates, flushes, the cleaner, and the lag of groups.

The number of series is bounded: a fixed number of topics, the largest ones, has series of its own, and the others are
added up under an empty topic; the same for the partitions that groups lag behind most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from duralog.broker.groups.offsets.table import TopicOffsets
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.flush_times import FLUSH_BUCKETS_SECONDS
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

MOST_TOPICS = 200
MOST_LAGS = 2_000


def of_store(store: Store, fetched_bytes: Mapping[str, int]) -> Iterator[Metric]:
    """From any thread. `fetched_bytes` are those of fetch answers, by topic."""
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
    yield from _of_topics(found, fetched_bytes)
    yield _of_flushes(log for logs in found.values() for log in logs)
    held = store.held
    yield gauge(
        "held_records",
        "Records that were due at the start, and that the default retention does not delete.",
        sum(topic.records for topic in held),
    )
    yield gauge("held_bytes", "Bytes of the held records.", sum(topic.size_bytes for topic in held))
    yield gauge(
        "background_errors",
        "Background failures, such as of flushes and compactions.",
        len(store.background_errors),
    )
    yield from _of_cleaner(store)


def _of_topics(found: Mapping[str, list[PartitionLog]], fetched_bytes: Mapping[str, int]) -> Iterator[Metric]:
    sizes = Counter({name: sum(log.size_bytes for log in logs) for name, logs in found.items()})
    largest = [name for name, _ in sizes.most_common(MOST_TOPICS)]
    appended = {name: sum(log.appended_bytes for log in logs) for name, logs in found.items()}
    offsets = {name: sum(log.end_offset for log in logs) for name, logs in found.items()}

    def counted(name: str, doc: str, by_topic: Mapping[str, int]) -> Metric:
        return _by_topic(CounterMetricFamily(f"duralog_{name}", doc, labels=["topic"]), by_topic, largest)

    size = GaugeMetricFamily("duralog_log_bytes", "Bytes of the logs.", labels=["topic"])
    yield _by_topic(size, sizes, largest)
    yield counted("appended_bytes", "Bytes that were appended to the logs.", appended)
    yield counted("end_offsets", "The end offsets of all partitions, added up. The rate is that of records.", offsets)
    yield counted("fetched_bytes", "Bytes of records that clients fetched.", fetched_bytes)


def _by_topic(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, int], largest: Iterable[str]
) -> Metric:
    left = sum(values.values())
    for name in largest:
        family.add_metric([name], values.get(name, 0))
        left -= values.get(name, 0)
    family.add_metric([""], left)
    return family


def _of_flushes(logs: Iterable[PartitionLog]) -> Metric:
    buckets, seconds = [0] * (len(FLUSH_BUCKETS_SECONDS) + 1), 0.0
    for log in logs:
        times = log.flush_times
        if times is not None:
            buckets = [sum(pair) for pair in zip(buckets, times.buckets, strict=True)]
            seconds += times.seconds
    bounds = [*(str(bound) for bound in FLUSH_BUCKETS_SECONDS), "+Inf"]
    family = HistogramMetricFamily("duralog_flush_seconds", "How long flushes of a log took.")
    family.add_metric([], list(zip(bounds, accumulate(buckets), strict=True)), seconds)
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
