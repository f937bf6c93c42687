"""Selects topics and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from duralog.errors import DuralogError, UnknownTopic
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import TopicSource, select_partitions


def unless_named(schemas_topic: str | None) -> frozenset[str]:
    """Topics that are only read by their name: Kafka's internal ones, and that of the schemas that payloads are decoded
    with, since it has none of these itself.
    """
    return INTERNAL_TOPICS if schemas_topic is None else INTERNAL_TOPICS | {schemas_topic}


def partitions_by_topic(
    store: TopicSource, topics: Sequence[str] | None, number: int | None = None, *, schemas_topic: str | None = None
) -> dict[str, list[TopicPartition]]:
    """The partitions of these topics, or of all but those that must be named; with a number, only those that have it.

    `schemas_topic` is that of the schemas, if payloads are decoded.
    """
    if topics is None:
        found = select_partitions(store, pattern=".*", unless_named=unless_named(schemas_topic))
    else:
        found = select_partitions(store, topics=topics)
    if not found:
        schemas = "" if schemas_topic is None else f" and that of the schemas, {schemas_topic}"
        raise DuralogError(
            f"{store.path}: there is no topic in it, or only Kafka's own{schemas}, which must be named: give a log"
            " directory, what Kafka calls log.dirs"
        )
    if number is not None:
        found = [partition for partition in found if partition.partition == number]
        if not found:
            raise UnknownTopic(
                f"{store.path}: there is no partition {number} of {' or '.join(topics or ['any topic'])}"
            )
    return {topic: list(partitions) for topic, partitions in groupby(found, key=lambda partition: partition.topic)}
