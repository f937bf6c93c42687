"""What is checked of a write before it is decided: staged files, and the topics as they are by then."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from duralog.errors import InvalidRecord, OffsetOutOfRange, RecordTooLarge
from duralog.format.compression import Codec
from duralog.format.topic_partition import TopicPartition
from duralog.spark.sink.staged_appending import Runs
from duralog.spark.sink.staging import Run, StagedFile, check_contents
from duralog.spark.sink.write_options import WriteOptions
from duralog.storage.append.record_append import stored_codec
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.retention import COMPACT
from duralog.storage.store import Store


def runs_by_partition(staged: Collection[StagedFile], *, preserve_offsets: bool) -> dict[TopicPartition, Runs]:
    """The runs of each partition in the order in which they are appended."""
    found: dict[TopicPartition, list[tuple[StagedFile, Run]]] = {}
    for file in staged:
        for run in file.runs:
            found.setdefault(TopicPartition(run.topic, run.partition), []).append((file, run))
    if preserve_offsets:
        for partition, runs in found.items():
            runs.sort(key=lambda item: item[1].first_offset)
            for (_, before), (_, after) in pairwise(runs):
                if after.first_offset <= before.last_offset:
                    raise InvalidRecord(
                        f"column offset: two tasks have offsets of {partition} that overlap, up to"
                        f" {before.last_offset} and from {after.first_offset} on: repartition by topic and partition,"
                        " and sort within partitions by offset"
                    )
    return dict(sorted(found.items()))


def check_all_contents(files: FileSystem, staged: Collection[StagedFile], *, threads: int) -> None:
    with ThreadPoolExecutor(threads, thread_name_prefix="duralog-staged") as pool:
        for checked in [pool.submit(check_contents, files, file) for file in staged]:
            checked.result()


def check_partition_count(topic: str, count: int, runs: Runs) -> None:
    """If the number of partitions has changed since, keys belong to other partitions."""
    for _, run in runs:
        if run.chosen_of not in (None, count):
            raise InvalidRecord(
                f"{topic} has {count} partitions, but {run.chosen_of} when the partitions of the rows were chosen by"
                " their keys: write them again"
            )


def make_topics(store: Store, by_partition: Mapping[TopicPartition, Runs], options: WriteOptions) -> None:
    highest = dict(sorted(by_partition))
    for topic in sorted(highest.keys() - set(store.topics())):
        count = options.partitions
        if count is None and options.preserve_offsets:
            count = highest[topic] + 1
        store.create_topic(topic, count, options.topic_configs)


def check_rules(store: Store, by_partition: Mapping[TopicPartition, Runs], options: WriteOptions) -> None:
    """What the tasks have checked by the configs of that time: they may have changed since."""
    for partition, runs in by_partition.items():
        log = store.partition(*partition)
        config = log.config
        check_partition_count(partition.topic, store.partition_count(partition.topic), runs)
        if COMPACT in config.cleanup_policy and any(run.has_null_key for _, run in runs):
            raise InvalidRecord(f"column key: {partition.topic} is compacted and accepts no record without a key")
        largest = max(run.largest_batch for _, run in runs)
        if largest > min(config.max_message_bytes, config.segment_bytes):
            raise RecordTooLarge(
                f"column value: a batch of {largest} bytes for {partition.topic}, whose max.message.bytes is"
                f" {config.max_message_bytes} and segment.bytes {config.segment_bytes}"
            )
        if options.preserve_offsets:
            first = runs[0][1].first_offset
            if first < log.end_offset:
                raise OffsetOutOfRange(
                    f"column offset: {partition} ends at {log.end_offset}: offset {first} cannot be appended before"
                    " that"
                )
        elif any(run.codec != stored_codec(config, Codec(run.codec)) for _, run in runs):
            raise InvalidRecord(
                f"the compression.type of {partition.topic} has changed while the rows were written: write them again"
            )
