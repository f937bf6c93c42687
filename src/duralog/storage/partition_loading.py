"""Loads logs from the folders of partitions and the checkpoints of their directories."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from duralog.config import TopicConfig
from duralog.config.definitions import INT64_MAX
from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import (
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    FileKind,
    FileState,
    PartitionFolder,
    parse_segment_file,
)
from duralog.format.properties import decode_partition_metadata, encode_partition_metadata
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.readable_log import FindLog
from duralog.storage.metadata.folder import METADATA_CONFIG, METADATA_PARTITION
from duralog.storage.metadata.topics import Topic
from duralog.storage.recovery.recovery import LoadOptions, OnBytes, load_partition
from duralog.storage.recovery.segment_rewrite import never_compacted

_INT32_MAX = 2**31 - 1

_logger = logging.getLogger(__name__)


class FolderOfAnotherTopic(StorageError):
    """The topic id in a folder is not that of the topic of its name."""

    def __init__(self, message: str, topic_id: str) -> None:
        super().__init__(message)
        self.topic_id = topic_id
        """The id in the folder."""


class _Copy(NamedTuple):
    """Where the copy of a partition is."""

    directory: LogDirectory
    path: str


class PartitionLoader:
    """Loads the partitions of a store. Several threads may use it, for different partitions."""

    def __init__(
        self,
        environment: LogEnvironment,
        directories: LogDirectories,
        *,
        producer_expiration_ms: int,
        is_clean: Callable[[TopicPartition], bool],
        read_only: bool,
    ) -> None:
        """`is_clean` returns whether a partition was closed cleanly, so that nothing has to be recovered."""
        self._files = environment.file_system
        self._directories = directories
        self.producer_expiration_ms = producer_expiration_ms
        self._is_clean = is_clean
        self._read_only = read_only
        self._clock = environment.clock
        self._environment = environment
        self.flush_times = environment.flush_times
        # Readers recover nothing.
        self._recovery_points = {} if read_only else dict(directories.read_checkpoint(RECOVERY_POINT_CHECKPOINT))
        self._log_starts = dict(directories.read_checkpoint(LOG_START_OFFSET_CHECKPOINT))
        self.checks_folders = True
        """Refuse folders of another topic. A plan for an object store leaves that to the tasks, which read the id of
        each folder anyway."""
        self.find_log: FindLog | None = None
        """The lookup of other logs of the store, as soon as there is a store."""
        self.cleaner_checkpoint = CleanerCheckpoint(directories)
        """That of the cleaner, as soon as there is one."""

    def topic_id(self, partition: TopicPartition) -> str | None:
        """The id of the topic that the folder belongs to; None if it has none."""
        path = f"{self._directories.folder_of(partition)}/{PARTITION_METADATA}"
        if not self._files.exists(path):
            return None
        try:
            return decode_partition_metadata(self._files.read_all(path))
        except CorruptRecord as error:
            raise error.in_file(path) from None

    def load(self, partition: TopicPartition, topic: Topic, on_bytes: OnBytes | None = None) -> PartitionLog:
        """The log in the partition's folder. A folder of another topic is refused, one without an id gets it."""
        found_id = self.topic_id(partition) if self.checks_folders else topic.topic_id
        folder = self._directories.folder_of(partition)
        if found_id is None:
            if topic.topic_id is not None and not self._read_only:
                self._files.replace(f"{folder}/{PARTITION_METADATA}", encode_partition_metadata(topic.topic_id))
        elif found_id != topic.topic_id:
            raise FolderOfAnotherTopic(
                f"{folder}: the folder belongs to another topic of this name: its id is {found_id},"
                f" that of {topic.name} is {topic.topic_id}",
                found_id,
            )
        return self._open(
            partition,
            topic.config,
            clean=self._is_clean(partition),
            leader_epoch=max(topic.leader_epoch(partition.partition), 0),
            on_bytes=on_bytes,
        )

    def make_folders(self, partitions: Iterable[TopicPartition]) -> None:
        """Make the folders of new partitions durably."""
        made = list(partitions)
        for partition in made:
            self._files.make_folder(self._directories.folder_of(partition))
        for directory in self._directories.directories_of(made):
            self._files.sync_folder(directory.path)

    def create(self, partition: TopicPartition, topic: Topic) -> PartitionLog:
        """A partition that has no folder yet."""
        self.make_folders([partition])
        return self.create_in_folder(partition, topic)

    def create_in_folder(self, partition: TopicPartition, topic: Topic) -> PartitionLog:
        """A partition that has an empty folder."""
        # An entry in a checkpoint is that of an older partition of this name.
        self._recovery_points.pop(partition, None)
        self._log_starts.pop(partition, None)
        self.cleaner_checkpoint.forget([partition])
        log = self.load(partition, topic)
        log.become_leader(max(topic.leader_epoch(partition.partition), 0))
        return log

    def open_copy(
        self, partition: TopicPartition, topic: Topic, directory: LogDirectory, folder: PartitionFolder
    ) -> PartitionLog:
        """The copy of a partition in another directory: a new one, or one that was closed before it was complete.

        Its segments are rolled only where those of the source are.
        """
        path = directory.path_of(folder.name)
        self._files.make_folder(path)
        if topic.topic_id is not None:
            self._files.replace(f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic.topic_id))
        self._files.sync_folder(directory.path)
        config = replace(topic.config, segment_bytes=_INT32_MAX, segment_ms=INT64_MAX, flush_messages=INT64_MAX)
        return self._open(partition, config, clean=True, copy=_Copy(directory, path))

    def load_moved(self, partition: TopicPartition, topic: Topic, copy: PartitionLog) -> PartitionLog:
        """The log of a copy that was closed, and whose folder has got the name of the partition."""
        self._recovery_points[partition] = copy.recovery_point
        self._log_starts[partition] = copy.start_offset
        return self._open(partition, topic.config, clean=True, leader_epoch=copy.leader_epoch)

    def load_metadata_log(self) -> PartitionLog:
        """The metadata log, which has no checkpoints: after a crash it is recovered as a whole."""
        return self._open(METADATA_PARTITION, METADATA_CONFIG, clean=self._is_clean(METADATA_PARTITION))

    def bytes_to_check(self, partition: TopicPartition) -> int:
        """How many bytes of a log have to be recovered, by the names and sizes of its files."""
        if self._is_clean(partition):
            return 0
        sizes: dict[int, int] = {}
        for entry in self._files.list(self._directories.folder_of(partition)):
            file = parse_segment_file(entry.name)
            if file is not None and file.kind is FileKind.LOG and file.state is FileState.LIVE:
                sizes[file.offset] = entry.size
        recovery_point = self._recovery_points.get(partition, 0)
        first = max((base for base in sizes if base <= recovery_point), default=0)
        return sum(size for base, size in sizes.items() if base >= first)

    def _open(
        self,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        clean: bool,
        leader_epoch: int = 0,
        on_bytes: OnBytes | None = None,
        copy: _Copy | None = None,
    ) -> PartitionLog:
        if copy is None:
            directory = self._directories.directory_of(partition)
            folder = directory.folder_of(partition)
        else:
            directory, folder = copy
        directory.check_lock()
        loaded = load_partition(
            self._files,
            folder,
            LoadOptions(
                config=config,
                clean=clean,
                recovery_point=self._recovery_points.get(partition, 0) if copy is None else 0,
                log_start_checkpoint=self._log_starts.get(partition, 0) if copy is None else 0,
                clock=self._clock,
                read_only=self._read_only,
                before_change=never_compacted if copy is not None else partial(self._count_as_new, partition),
                on_bytes=on_bytes,
                producer_expiration_ms=self.producer_expiration_ms,
            ),
        )
        log = PartitionLog(
            replace(loaded, check_lock=directory.check_lock),
            topic=partition.topic,
            partition=partition.partition,
            config=config,
            environment=self._environment,
            read_only=self._read_only,
            leader_epoch=leader_epoch,
        )
        if self.find_log is not None:
            log.find_log = self.find_log
        return log

    def _count_as_new(self, partition: TopicPartition, offset: int) -> None:
        """Let the log count as new from this offset on."""
        if self.cleaner_checkpoint.lower_on_disk(partition, offset):
            _logger.warning("%s: compaction begins at offset %d, where the log is repaired", partition, offset)
