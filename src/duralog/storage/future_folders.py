"""What a start finds of partitions that were being moved to another directory: folders that end with `-future`.

As in Kafka, the metadata decides. It names the new directory only when the copy is complete and synced, before any
folder is renamed (`duralog.storage.partition_move`). So:

| the metadata names       | then                                                                                |
|--------------------------|-------------------------------------------------------------------------------------|
| the directory of the copy | the copy takes the place of the partition: the interrupted renames are completed    |
| the same, but the partition is there and has more | the store continues the move: a crash of Kafka leaves this |
| another one               | the copy is not complete: the store continues the move                              |
| no such topic any more    | the copy is deleted                                                                 |

Kafka appends to the partition until the metadata names the new directory and the copy has caught up again. It promotes
the copy after a crash in between, and loses what was appended last.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from duralog.errors import DuralogError
from duralog.format.filenames import (
    PARTITION_METADATA,
    FileKind,
    FileState,
    FolderState,
    PartitionFolder,
    parse_segment_file,
)
from duralog.format.properties import decode_partition_metadata
from duralog.format.topic_partition import TopicPartition
from duralog.storage.deleted_folders import DeletedFolders
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import Folders, LogDirectory
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.metadata.topics import Topics

_logger = logging.getLogger(__name__)


class FutureFolders:
    """Settles the copies of one store, before its partitions are loaded."""

    def __init__(
        self,
        files: FileSystem,
        directories: LogDirectories,
        topics: Topics,
        metadata: MetadataFolder,
        deleted: DeletedFolders,
    ) -> None:
        self._files = files
        self._directories = directories
        self._topics = topics
        self._metadata = metadata
        self._deleted = deleted

    def settle(self, folders: Mapping[LogDirectory, Folders]) -> list[tuple[LogDirectory, PartitionFolder]]:
        """Returns the copies that a move continues with."""
        found = [(directory, folder) for directory, listed in folders.items() for folder in listed.future]
        removed_ids = self._metadata.removed_topic_ids() if found else set()
        resumed: dict[TopicPartition, tuple[LogDirectory, PartitionFolder]] = {}
        for directory, folder in found:
            if self._is_resumed(directory, folder, removed_ids):
                kept = resumed.setdefault(TopicPartition(folder.topic, folder.partition), (directory, folder))
                if kept != (directory, folder):
                    self.delete(directory, folder)  # It was cancelled, and a crash came before it was removed.
        return list(resumed.values())

    def _is_resumed(self, directory: LogDirectory, folder: PartitionFolder, removed_ids: set[str]) -> bool:
        partition = TopicPartition(folder.topic, folder.partition)
        path = directory.path_of(folder.name)
        topic_id = self._topic_id(path)
        topic = self._topics.by_name.get(partition.topic)
        if topic_id in removed_ids:
            self.delete(directory, folder)
            return False
        if topic is None or partition.partition not in topic.partitions or topic_id not in (None, topic.topic_id):
            _logger.warning("%s: left unchanged: the copy of a partition that is not in the metadata", path)
            return False
        home = self._directories.home_of(partition)
        if home is directory:
            self.delete(directory, folder)  # Another copy has become the partition since.
            return False
        is_named = directory.directory_id == topic.directory_ids.get(partition.partition)
        if is_named and (home is None or self._has_all_of(home.folder_of(partition), path)):
            self._promote(directory, folder, partition)
            return False
        if home is None:
            _logger.warning("%s: left unchanged: the partition that it copies does not exist", path)
            return False
        return True

    def _topic_id(self, path: str) -> str | None:
        file = f"{path}/{PARTITION_METADATA}"
        try:
            return decode_partition_metadata(self._files.read_all(file)) if self._files.exists(file) else None
        except DuralogError:
            return None

    def _has_all_of(self, source: str, copy: str) -> bool:
        """Whether each log file of the source is in the copy, and not smaller there."""
        copied = self._sizes_in(copy)
        return all(size <= copied.get(name, -1) for name, size in self._sizes_in(source).items())

    def _sizes_in(self, folder: str) -> dict[str, int]:
        files = ((entry, parse_segment_file(entry.name)) for entry in self._files.list(folder))
        return {
            entry.name: entry.size
            for entry, file in files
            if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE
        }

    def _promote(self, directory: LogDirectory, folder: PartitionFolder, partition: TopicPartition) -> None:
        _logger.info("%s: completing the interrupted move to %s", partition, directory.path)
        if self._directories.home_of(partition) is not None:
            self._deleted.delete([partition])
        self._files.rename(directory.path_of(folder.name), directory.folder_of(partition))
        self._files.sync_folder(directory.path)
        self._directories.place({partition: directory})

    def delete(self, directory: LogDirectory, folder: PartitionFolder) -> None:
        """Rename a copy that is not needed any more durably, and remove it later."""
        deleted = replace(folder, state=FolderState.DELETED)
        self._files.rename(directory.path_of(folder.name), directory.path_of(deleted.name))
        self._files.sync_folder(directory.path)
        self._deleted.remove_later(directory, [deleted])
