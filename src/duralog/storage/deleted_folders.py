"""Deletes the folders of partitions: renamed first, so that a start after a crash continues, removed after a delay.

The delay is for readers that still open the partition's older files. A reader can read an open file to its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial

from duralog.errors import StorageError
from duralog.format.filenames import FolderState, PartitionFolder
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory


class DeletedFolders:
    def __init__(self, files: FileSystem, directories: LogDirectories, scheduler: Scheduler, delay_ms: int) -> None:
        self._files = files
        self._directories = directories
        self._scheduler = scheduler
        self.delay_ms = delay_ms

    def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Rename the folders of these partitions durably, and remove them later. A failure does not stop the others."""
        renamed: dict[LogDirectory, list[PartitionFolder]] = {}
        failure: StorageError | None = None
        for partition in partitions:
            directory = self._directories.directory_of(partition)
            if directory.failure is not None:
                continue  # It is deleted when the directory is back.
            # Even if no folder was found: then its directory is synced.
            of_directory = renamed.setdefault(directory, [])
            if self._files.exists(directory.folder_of(partition)):
                folder = PartitionFolder(*partition, FolderState.DELETED, uuid.uuid4().hex)
                try:
                    self._files.rename(directory.folder_of(partition), directory.path_of(folder.name))
                except StorageError as error:
                    failure = failure or error
                else:
                    of_directory.append(folder)
        for directory, folders in renamed.items():
            self.remove_later(directory, folders)
            self._files.sync_folder(directory.path)
        if failure is not None:
            raise failure

    def remove_later(self, directory: LogDirectory, folders: Iterable[PartitionFolder]) -> None:
        for folder in folders:
            self._scheduler.after(
                self.delay_ms,
                f"removing {folder.name}",
                partial(self._files.remove_folder, directory.path_of(folder.name)),
            )
