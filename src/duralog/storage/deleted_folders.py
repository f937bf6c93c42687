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
from duralog.storage.disk.log_directory import LogDirectory


class DeletedFolders:
    def __init__(self, files: FileSystem, directory: LogDirectory, scheduler: Scheduler, delay_ms: int) -> None:
        self._files = files
        self._directory = directory
        self._scheduler = scheduler
        self.delay_ms = delay_ms

    def delete(self, partitions: Iterable[TopicPartition]) -> None:
        """Rename the folders of these partitions durably, and remove them later. A failure does not stop the others."""
        renamed: list[PartitionFolder] = []
        failure: StorageError | None = None
        for partition in partitions:
            folder = PartitionFolder(*partition, FolderState.DELETED, uuid.uuid4().hex)
            if self._files.exists(self._directory.folder_of(partition)):
                try:
                    self._files.rename(self._directory.folder_of(partition), self._directory.path_of(folder.name))
                except StorageError as error:
                    failure = failure or error
                else:
                    renamed.append(folder)
        self.remove_later(renamed)
        self._files.sync_folder(self._directory.path)
        if failure is not None:
            raise failure

    def remove_later(self, folders: Iterable[PartitionFolder]) -> None:
        for folder in folders:
            self._scheduler.after(
                self.delay_ms,
                f"removing {folder.name}",
                partial(self._files.remove_folder, self._directory.path_of(folder.name)),
            )
