"""Selects topics and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from duralog.errors import DuralogError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import TopicSource, select_partitions


def partitions_by_topic(
    store: TopicSource, topics: Sequence[str] | None, number: int | None = None
) -> dict[str, list[TopicPartition]]:
    """The partitions of these topics, or of all but Kafka's internal ones; with a number, only those that have it."""
    found = select_partitions(store, pattern=".*") if topics is None else select_partitions(store, topics=topics)
    if not found:
        raise DuralogError(
            f"{store.path}: there is no topic in it, or only Kafka's own, which must be named: give a log directory,"
            " what Kafka calls log.dirs"
        )
    if number is not None:
        found = [partition for partition in found if partition.partition == number]
        if not found:
            raise UnknownTopic(
                f"{store.path}: there is no partition {number} of {' or '.join(topics or ['any topic'])}"
            )
    return {topic: list(partitions) for topic, partitions in groupby(found, key=lambda partition: partition.topic)}
