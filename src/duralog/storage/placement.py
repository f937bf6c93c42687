"""The placement of partitions in the directories of a store, also of new ones."""

from __future__ import annotations

import logging
import os.path
from collections.abc import Mapping, Sequence

from duralog.config import BrokerConfig
from duralog.config.plurals import plural
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import ZERO_UUID
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.metadata.cluster_metadata import PartitionRegistration, TopicState
from duralog.storage.metadata.topics import Topic, assigned_directory

_logger = logging.getLogger(__name__)


class DirectoryPlacement:
    """The placement of a store.

    With `with_absent`, it also holds the partitions of directories that are not given: they are offline, and counted.
    """

    def __init__(
        self, node_id: int, directories: LogDirectories, config: BrokerConfig, *, with_absent: bool = False
    ) -> None:
        self.node_id = node_id
        self.config = config
        self._directories = directories
        self._with_absent = with_absent

    def holds(self, topic: str, partition: PartitionRegistration) -> bool:
        """Whether a partition is in one of the directories, also in one that is offline.

        Of a directory that cannot be read, the id is not known: it may be any that the others do not have. A folder
        counts in any directory: after a disk was replaced, its partitions may have been restored to another one.
        """
        if self.node_id not in partition.replicas:
            return False
        return self._with_absent or self._absent_directory(topic, partition) is None

    def absent(self, topics: Mapping[str, TopicState]) -> dict[TopicPartition, str]:
        """The partitions of this node in directories that are not given, with the ids of these directories."""
        return {
            TopicPartition(name, number): directory_id
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if self.node_id in partition.replicas
            and (directory_id := self._absent_directory(name, partition)) is not None
        }

    def _absent_directory(self, topic: str, partition: PartitionRegistration) -> str | None:
        """The id of the directory that has this partition of the node, if it is none of those that are given."""
        assigned = assigned_directory(partition, self.node_id)
        if assigned is None or any(each.directory_id in (assigned, None) for each in self._directories.all):
            return None
        has_folder = self._directories.home_of(TopicPartition(topic, partition.partition)) is not None
        return None if has_folder else assigned

    def directory_ids(self, topic: str, numbers: range) -> Sequence[str]:
        homes = [self._directories.home_of(TopicPartition(topic, number)) for number in numbers]
        new = iter(self.next_directories(homes.count(None)))
        return [(next(new) if home is None else home).directory_id or ZERO_UUID for home in homes]

    def next_directories(self, count: int) -> list[LogDirectory]:
        """The directories for new partitions: those with the fewest."""
        return self._directories.emptiest(count, {os.path.abspath(path) for path in self.config.cordoned_log_dirs})

    def homes_of_new(self, topic: Topic, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogDirectory]:
        """Where partitions without a folder are made: where the metadata says, otherwise where the fewest are.

        Without those that may be in a directory that is offline: nothing is made in their place.
        """
        by_id = {directory.directory_id: directory for directory in self._directories.all}
        is_one_lost = any(directory.failure is not None for directory in self._directories.all)
        homes: dict[TopicPartition, LogDirectory] = {}
        unassigned: list[TopicPartition] = []
        for partition in partitions:
            home = self._directories.home_of(partition)
            if home is not None and home.failure is None:
                homes[partition] = home  # An earlier attempt has made its folder.
                continue
            assigned = by_id.get(topic.directory_ids.get(partition.partition, ZERO_UUID))
            if assigned is not None and assigned.failure is None:
                homes[partition] = assigned
            elif assigned is None and not is_one_lost:
                unassigned.append(partition)
        homes.update(zip(unassigned, self.next_directories(len(unassigned)), strict=True))
        return homes


def warn_of_absent(paths: Sequence[str], absent: Mapping[TopicPartition, str]) -> None:
    """For readers and commands, which leave out the partitions of directories that were not given."""
    if not absent:
        return
    first = min(absent)
    _logger.warning(
        "%s: %s of the node %s left out, first %s: the metadata places them in log directories that were not given,"
        " first the one with the id %s. Give all log.dirs of the node",
        ", ".join(paths),
        plural(len(absent), "partition"),
        "is" if len(absent) == 1 else "are",
        first,
        absent[first],
    )
