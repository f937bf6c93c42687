"""The result of opening directories (`duralog.storage.opening`), which the store serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.format.filenames import PartitionFolder
from duralog.format.properties import MetaProperties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.deleted_folders import DeletedFolders
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.metadata.topics import Topics
from duralog.storage.partition_loading import FolderOfAnotherTopic, PartitionLoader
from duralog.storage.placement import DirectoryPlacement
from duralog.storage.recovery.recovery import OnBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    """All that a store needs to serve its directories."""

    directories: LogDirectories
    meta: MetaProperties
    """The owner; the directory id is that of the metadata log's directory."""
    config: BrokerConfig
    """Includes what the cluster metadata sets for brokers."""
    read_only: bool
    metadata: MetadataFolder
    topics: Topics
    placement: DirectoryPlacement
    loader: PartitionLoader
    deleted: DeletedFolders
    logs: dict[TopicPartition, PartitionLog]
    """Empty for a directory that is only read: its logs are loaded on first use."""
    offline: dict[TopicPartition, Exception]
    """The partitions that could not be loaded, and why."""
    unloaded: set[TopicPartition] = field(default_factory=set)
    """The partitions that are loaded on first use. They were closed cleanly, and stay as they are until then."""
    absent: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The partitions of this node in directories that are not given, with the ids of these. A store that serves the
    node has them in `offline`, others leave them out."""
    futures: list[tuple[LogDirectory, PartitionFolder]] = field(default_factory=list)
    """Copies of interrupted moves, which the moves can continue with."""

    @property
    def was_clean(self) -> bool:
        """All logs had been closed cleanly."""
        return all(directory.was_clean for directory in self.directories.online)

    def load(self, partition: TopicPartition, removed_ids: Callable[[], set[str]], on_bytes: OnBytes) -> PartitionLog:
        """The log in a folder, to write to it. A folder that is left from a deleted topic is removed first."""
        topic = self.topics.get(partition.topic)
        try:
            return self.loader.load(partition, topic, on_bytes)
        except FolderOfAnotherTopic as error:
            if error.topic_id not in removed_ids():
                raise
        self.deleted.delete([partition])
        return self.loader.create(partition, topic)

    def place_missing(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Choose directories for partitions of the metadata that have no folder. Returns those that can be made.

        The others are offline: they may be in a directory that is.
        """
        made: list[TopicPartition] = []
        for name, missing in by_topic(sorted(partitions)):
            homes = self.placement.homes_of_new(self.topics.get(name), missing)
            self.directories.place(homes)
            made += homes
            for partition in missing:
                if partition not in homes:
                    self.offline[partition] = StorageError(
                        f"its directory is offline: {', '.join(found.path for found in self.directories.failed)}"
                    )
        return made

    def delete_folders(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the folders of these partitions: they are renamed now and removed later."""
        gone = list(partitions)
        try:
            self.deleted.delete(gone)
        finally:
            self.directories.forget(gone)


def by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    """REQUIRES: they are sorted."""
    for name, group in groupby(partitions, key=lambda partition: partition.topic):
        yield name, list(group)
