"""Selects the partitions of a request: by topic and number, or by the folder of one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from duralog.config.error_text import describe
from duralog.errors import UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.found_files import directory_of
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.store import Store


@dataclass(frozen=True, slots=True)
class Choice:
    """Partitions of a directory: all, or those of some topics, or those with a number, or both."""

    topics: Collection[str] | None = None
    partition: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        is_topic = self.topics is None or partition.topic in self.topics
        return is_topic and self.partition in (None, partition.partition)

    def partitions(self, store: Store) -> Iterator[TopicPartition]:
        """Those that are online. Raises `UnknownTopic` for a topic that does not exist, and if no partition has the
        number.
        """
        offline = self.offline(store)
        is_there = bool(offline)
        without_metadata = {found.topic for found in offline}.difference(store.topics())
        for topic in store.topics() if self.topics is None else self.topics:
            for number in () if topic in without_metadata else store.partitions(topic):
                partition = TopicPartition(topic, number)
                if self.includes(partition) and partition not in offline:
                    is_there = True
                    yield partition
        if not is_there and self.partition is not None:
            whose = "any topic" if self.topics is None else ", ".join(self.topics)
            raise UnknownTopic(f"{store.path}: there is no partition {self.partition} of {whose}")

    def offline(self, store: Store) -> dict[TopicPartition, str]:
        """Those that are offline, and why."""
        return {
            partition: f"it is offline: {describe(error)}"
            for partition, error in sorted(store.offline.items(), key=lambda found: found[0])
            if self.includes(partition)
        }


EVERYTHING = Choice()


def chosen_in(path: str, topics: Collection[str] | None, partition: int | None) -> tuple[str, Choice]:
    """The log directory and the choice, for a path that may also be a partition's folder, which is then chosen."""
    directory, folder = directory_of(path)
    if folder is not None:
        return directory, Choice([folder.topic], folder.partition)
    return directory, Choice(topics, partition)


@contextmanager
def opened_partition(path: str, topic: str | None, partition: int | None) -> Iterator[PartitionLog]:
    """The log, for reading. The topic, or the partition, need not be given if there is only one."""
    directory, chosen = directory_of(path)
    if chosen is not None:
        topic, partition = chosen.topic, chosen.partition
    with Store(directory, read_only=True) as store:
        yield store.partition(*_only_partition(store, path, topic, partition))


def _only_partition(store: Store, path: str, topic: str | None, partition: int | None) -> TopicPartition:
    topics = store.topics()
    if topic is None:
        if not topics:
            raise UnknownTopic(f"{path}: there is no topic in it: give a log directory, or a partition's folder")
        if len(topics) != 1:
            listed = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
            raise UnknownTopic(f"{path} has {len(topics)} topics: choose a topic ({listed})")
        topic = topics[0]
    partitions = [METADATA_PARTITION.partition] if topic == METADATA_PARTITION.topic else store.partitions(topic)
    if partition is None:
        if len(partitions) != 1:
            raise UnknownTopic(f"{path}: {topic} has {len(partitions)} partitions: choose a partition")
        partition = partitions[0]
    return TopicPartition(topic, partition)
