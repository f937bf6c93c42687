"""Which topic a name means, where folders of several topics of that name are left: by the ids in `partition.metadata`.

A topic that was deleted while a node was down, and created again, has two ids. What must always be true: all partitions
of a name are those of one topic. A partition that has folders of another one only has no copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from duralog.config.times import format_time
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.directory import ClusterDirectory
from duralog.scanning.remote_work import side_by_side
from duralog.storage.metadata.cluster_metadata import ClusterMetadata

_Folder = tuple[ClusterDirectory, TopicPartition]


class TopicIds:
    """Several threads may ask."""

    def __init__(
        self, holders: Mapping[TopicPartition, Sequence[ClusterDirectory]], metadata: ClusterMetadata | None
    ) -> None:
        self._holders = holders
        self._by_metadata = {} if metadata is None else {name: each.topic_id for name, each in metadata.topics.items()}
        self._of_folders: dict[_Folder, str | None] = {}
        self._of_topics: dict[str, str | None] = {}
        self._newest_ms: dict[str, int] = {}

    def load(self, topics: Iterable[str], *, is_remote: bool) -> None:
        """Read the ids of topics that the metadata does not have: then all of their folders count."""
        wanted = set(topics) - self._by_metadata.keys()
        folders = [
            (directory, partition)
            for partition, directories in self._holders.items()
            if partition.topic in wanted
            for directory in directories
            if (directory, partition) not in self._of_folders
        ]
        for _ in side_by_side(self._of_folder, folders, is_remote=is_remote):
            pass

    def of_folders(self, partition: TopicPartition) -> dict[ClusterDirectory, str | None]:
        return {directory: self._of_folder((directory, partition)) for directory in self._holders.get(partition, ())}

    def of(self, partition: TopicPartition) -> str | None:
        """The id of the topic that the partition belongs to; None if no folder has one, and the metadata neither."""
        known = self._by_metadata.get(partition.topic)
        if known is not None and set(self.of_folders(partition).values()) <= {None, known}:
            return known
        if partition.topic not in self._of_topics:
            self._of_topics[partition.topic] = self._newest(partition.topic, known)
        return self._of_topics[partition.topic]

    def decided_by_time(self, topic: str) -> str:
        """A remark if the newest record decided which topic it is: producers' clocks may have been wrong."""
        newest_ms = self._newest_ms.get(topic)
        if newest_ms is None:
            return ""
        when = "without a time" if newest_ms < 0 else f"of {format_time(newest_ms)}"
        return (
            f", since the other one has the newest record, {when}. If that clock was wrong, give the directory with the"
            " cluster metadata, or leave out the directories of the topic that is not wanted"
        )

    def _of_folder(self, folder: _Folder) -> str | None:
        if folder not in self._of_folders:
            directory, partition = folder
            self._of_folders[folder] = directory.topic_id(partition)
        return self._of_folders[folder]

    def _newest(self, topic: str, known: str | None) -> str | None:
        """By the metadata, if any folder has that id; otherwise that of the folder with the newest record."""
        folders = {
            folder: found
            for partition in self._holders
            if partition.topic == topic
            for folder in ((directory, partition) for directory in self._holders[partition])
            if (found := self._of_folder(folder)) is not None
        }
        distinct = set(folders.values())
        if known in distinct or len(distinct) < 2:
            return known if known in distinct else next(iter(distinct), None)
        newest = {folder: _newest_record_ms(folder) for folder in folders}
        chosen = max(newest, key=newest.__getitem__)
        self._newest_ms[topic] = newest[chosen]
        return folders[chosen]


def _newest_record_ms(folder: _Folder) -> int:
    directory, partition = folder
    with suppress(DuralogError):
        view = directory.store.partition(*partition).view
        return max((segment.largest_timestamp_ms for segment in view.segments), default=-1)
    return -1
