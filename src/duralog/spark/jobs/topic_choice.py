"""Which topics a job is about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from duralog.errors import DuralogError
from duralog.spark.planning import select_partitions
from duralog.storage.log_directory import TopicPartition
from duralog.storage.store import Store


def partitions_by_topic(store: Store, topics: Sequence[str] | None) -> dict[str, list[TopicPartition]]:
    """The partitions of these topics; without names, of all but Kafka's internal ones."""
    found = select_partitions(store, pattern=".*") if topics is None else select_partitions(store, topics=topics)
    if not found:
        raise DuralogError(f"{store.path}: there is no topic in it")
    return {topic: list(partitions) for topic, partitions in groupby(found, key=lambda partition: partition.topic)}
