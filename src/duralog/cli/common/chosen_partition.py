"""The partitions that a command line means: by a directory, a topic and a number, or one of them by its folder."""

from __future__ import annotations

from collections.abc import Iterator

from duralog.errors import UnknownTopic
from duralog.storage.disk.found_files import directory_of
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


def choose_partition(path: str, topic: str | None, partition: int | None) -> PartitionLog:
    """The log, to be read. What is not said may be left out where there is only one."""
    directory, chosen = directory_of(path)
    if chosen is not None:
        topic, partition = chosen.topic, chosen.partition
    store = Store(directory, read_only=True)
    topics = store.topics()
    if topic is None:
        if not topics:
            raise UnknownTopic(f"{path}: there is no topic in it: give a log directory, or a partition's folder")
        if len(topics) != 1:
            listed = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
            raise UnknownTopic(
                f"{path} has {len(topics)} topics: choose one with --topic{f' ({listed})' if listed else ''}"
            )
        topic = topics[0]
    partitions = [METADATA_PARTITION.partition] if topic == METADATA_PARTITION.topic else store.partitions(topic)
    if partition is None:
        if len(partitions) != 1:
            raise UnknownTopic(f"{path}: choose one of the {len(partitions)} partitions of {topic} with --partition")
        partition = partitions[0]
    return store.partition(topic, partition)


def choose_partitions(store: Store, topic: str | None, partition: int | None) -> Iterator[tuple[str, int]]:
    """All partitions of the store, or only those of the topic, or only those with the number."""
    is_there = False
    for name in store.topics() if topic is None else [topic]:
        for number in store.partitions(name):
            if partition in (None, number):
                is_there = True
                yield name, number
    if not is_there and partition is not None:
        raise UnknownTopic(f"{store.path}: there is no partition {partition} of {topic or 'any topic'}")


def is_any_unknown(store: Store, topic: str | None, partition: int | None) -> bool:
    """Whether a chosen partition is offline because its topic's metadata is lost. Opening the store has told so."""
    known = set(store.topics())
    return any(
        offline.topic not in known and topic in (None, offline.topic) and partition in (None, offline.partition)
        for offline in store.offline
    )
