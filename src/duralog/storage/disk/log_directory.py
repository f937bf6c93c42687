"""One directory of Kafka's `log.dirs`: its owner, its lock, its partition folders and its checkpoints.

    .lock                     locked while the directory is open for writing
    meta.properties           the node and the cluster that own the directory
    .kafka_cleanshutdown      exists while the directory is closed and nothing has to be recovered
    *-checkpoint              one offset per partition

What must always be true:
- The clean-shutdown marker is on disk only while every log is closed and flushed. It is removed, durably, before the
  first log is loaded, and it is the last file that a clean stop writes.
- Nothing is written without the lock. The lock is on a file: if that is removed, another process can lock a new one.
  `check_lock` detects this before each write here, and before a log is opened, flushed, rolled or closed.

A damaged checkpoint is treated as a missing one, with a warning. A damaged `meta.properties` is an error: the owner of
the directory must be known before anything is written to it.
"""

from __future__ import annotations

import logging
import os.path
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from duralog.errors import CorruptRecord, StorageError
from duralog.format.checkpoints import PartitionOffset, decode_offset_checkpoint, encode_offset_checkpoint
from duralog.format.filenames import (
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    FolderState,
    PartitionFolder,
    has_partition_files,
    is_log_directory,
    parse_partition_folder,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.properties import (
    META_PROPERTIES_VERSION,
    MetaProperties,
    decode_json_object,
    decode_meta_properties,
    encode_clean_shutdown,
    encode_meta_properties,
)
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import random_uuid
from duralog.storage.disk.file_system import Entry, FileSystem, Lock

DEFAULT_NODE_ID = 1
_NO_BROKER_EPOCH = -1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders with the name of a partition, without Kafka's `-stray` folders."""

    live: Sequence[TopicPartition]
    """Sorted, without the metadata log. A folder that is not in the metadata may only be named like a partition."""
    deleted: Sequence[PartitionFolder]
    """Folders of deleted topics. They are to be removed."""
    future: Sequence[PartitionFolder]
    """Copies of partitions that are being moved here from another directory."""


class CheckpointFiles(Protocol):
    """Checkpoints with one offset per partition: of one directory, or of several."""

    def read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]: ...

    def write_checkpoint(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None: ...


class LogDirectory:
    """One log directory. Methods that write require the lock."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        if not path:
            # Its paths would start at the root directory.
            raise StorageError("cannot open a directory without a name: give its path")
        self._files = file_system
        self.path = path
        self._lock: Lock | None = None
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._checkpoint_lock = threading.Lock()
        self._broker_epoch = _NO_BROKER_EPOCH
        self.meta: MetaProperties | None = None
        """Its owner, as soon as that was read or written."""
        self.was_clean = False
        """It was closed cleanly before it was opened."""
        self.failure: Exception | None = None
        """Why the directory is offline: nothing in it is read or written any more."""
        self.checkpoint_error: StorageError | None = None
        """Why a checkpoint could not be written. The directory is about to go offline."""

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r})"

    @property
    def directory_id(self) -> str | None:
        return None if self.meta is None else self.meta.directory_id

    @property
    def held_lock(self) -> Lock | None:
        return self._lock

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def folder_of(self, partition: TopicPartition) -> str:
        return self.path_of(PartitionFolder(partition.topic, partition.partition).name)

    def has_folder(self, partition: TopicPartition) -> bool:
        return self._files.exists(self.folder_of(partition))

    def lock(self) -> Lock:
        """Lock the directory against other writers, Kafka included. Raises `StoreLocked` if another one has it."""
        if not self._files.exists(self.path_of(META_PROPERTIES)) and self._files.exists(self.path):
            self._refuse_partition()
        self.make()
        self._lock = self._files.lock(self.path_of(LOCK))
        return self._lock

    def check_lock(self) -> None:
        """Raise `LockLost` if this object locked the directory and the lock no longer keeps other writers out."""
        if self._lock is not None:
            self._lock.check()

    def make(self) -> None:
        """Create the directory durably if it does not exist."""
        missing: list[str] = []
        folder = os.path.normpath(self.path)
        while folder and not self._files.exists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        if missing:
            self._files.make_folder(self.path)
            for made in missing:
                self._files.sync_folder(os.path.dirname(made))

    def folders(self) -> Folders:
        live: list[TopicPartition] = []
        deleted: list[PartitionFolder] = []
        future: list[PartitionFolder] = []
        for entry in self._files.list(self.path):
            folder = parse_partition_folder(entry.name) if entry.is_folder else None
            if folder is None or folder.topic == CLUSTER_METADATA:
                continue
            if folder.state is FolderState.LIVE:
                live.append(TopicPartition(folder.topic, folder.partition))
            elif folder.state is FolderState.DELETED:
                deleted.append(folder)
            elif folder.state is FolderState.FUTURE:
                future.append(folder)
        return Folders(sorted(live), deleted, future)

    def are_partitions(self, folders: Iterable[TopicPartition]) -> bool:
        """Whether these folders of one topic, which is not in the metadata, are partitions.

        They are if one of them has log files, or is in the checkpoint of recovery points: then it had log files once.
        REQUIRES: that checkpoint was read.
        """
        named = self.last_checkpoint(RECOVERY_POINT_CHECKPOINT)
        return any(
            partition in named or has_partition_files(self._names_in(self.folder_of(partition)))
            for partition in folders
        )

    def has_logs(self) -> bool:
        """Whether this is a log directory, and not just any folder."""
        entries = {entry.name: entry for entry in self._files.list(self.path)}
        return is_log_directory(
            entries, lambda name: self._names_in(self.path_of(name)) if entries[name].is_folder else ()
        )

    def check(self) -> None:
        """Refuse a folder without log files, and the folder of a single partition."""
        if self.has_logs():
            return
        self._refuse_partition()
        raise StorageError(
            f"{self.path}: no log files in here: check the path, or create a topic with duralog topic create"
            f" {self.path} --topic NAME"
        )

    def _refuse_partition(self) -> None:
        if has_partition_files(self._files.list_names(self.path)) and not self.has_logs():
            raise StorageError(f"{self.path}: this is one partition: give the log directory that it is in")

    def _names_in(self, folder: str) -> Collection[str]:
        try:
            return self._files.list_names(folder)
        except StorageError:
            # It may be a partition. Loading it reports the error.
            return (PARTITION_METADATA,)

    def read_meta(self) -> MetaProperties | None:
        path = self.path_of(META_PROPERTIES)
        if not self._files.exists(path):
            return None
        try:
            self.meta = decode_meta_properties(self._files.read_all(path))
        except CorruptRecord as error:
            raise error.in_file(path) from None
        return self.meta

    def write_meta(self, cluster_id: str | None, node_id: int | None, now_ms: int) -> MetaProperties:
        """Assign the directory to a node, of a new cluster if no id is given. It gets an id of its own."""
        self.meta = MetaProperties(
            version=META_PROPERTIES_VERSION,
            cluster_id=random_uuid() if cluster_id is None else cluster_id,
            node_id=DEFAULT_NODE_ID if node_id is None else node_id,
            directory_id=random_uuid(),
        )
        data = encode_meta_properties(self.meta, written=_as_java_writes(now_ms))
        self._files.replace(self.path_of(META_PROPERTIES), data)
        return self.meta

    def take_clean_shutdown(self) -> bool:
        """Whether the directory was closed cleanly. The marker is removed; `put_clean_shutdown` writes it again."""
        path = self.path_of(CLEAN_SHUTDOWN)
        self.was_clean = self._files.exists(path)
        if not self.was_clean:
            return False
        try:
            broker_epoch = decode_json_object(self._files.read_all(path)).get("brokerEpoch")
        except CorruptRecord:
            broker_epoch = None  # Only the existence of the file matters.
        self._broker_epoch = broker_epoch if isinstance(broker_epoch, int) else _NO_BROKER_EPOCH
        self._files.remove(path)
        self._files.sync_folder(self.path)
        return True

    def put_clean_shutdown(self) -> None:
        """REQUIRES: every log is closed, and the checkpoints are written."""
        self.check_lock()
        self._files.write(self.path_of(CLEAN_SHUTDOWN), encode_clean_shutdown(self._broker_epoch), sync=True)
        self._files.sync_folder(self.path)

    def read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets in a checkpoint file. One that is damaged is ignored with a warning."""
        try:
            offsets = self.decode_checkpoint(name)
        except CorruptRecord as error:
            _logger.warning("ignored a damaged checkpoint: %s", error)
            return {}
        if offsets is None:
            return {}
        self._checkpoints[name] = offsets
        return offsets

    def decode_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        """The offsets in a checkpoint file; None if there is none. Raises `CorruptRecord`."""
        path = self.path_of(name)
        if not self._files.exists(path):
            return None
        try:
            entries = decode_offset_checkpoint(self._files.read_all(path))
            return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}
        except CorruptRecord as error:
            raise error.in_file(path) from None

    def last_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets that were last read from a checkpoint file, or written to it. Does no I/O."""
        return self._checkpoints.get(name, {})

    def write_checkpoint(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace a checkpoint file if its offsets have changed. Calls run one after the other, `collect` included."""
        with self._checkpoint_lock:
            offsets = dict(collect())
            if self._checkpoints.get(name) == offsets:
                return
            self.check_lock()
            self._replace_checkpoint(name, offsets)
            self._checkpoints[name] = offsets

    def _replace_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [PartitionOffset(*partition, offset) for partition, offset in sorted(offsets.items())]
        self._files.replace(self.path_of(name), encode_offset_checkpoint(entries))


class FollowedCheckpoint:
    """A checkpoint file that another process may write. It is read again only if it has changed."""

    def __init__(self, files: FileSystem, directory: str, name: str) -> None:
        self._files = files
        self._directory = LogDirectory(files, directory)
        self._name = name
        self._entry: Entry | None = None
        self._offsets: Mapping[TopicPartition, int] = {}

    def read(self) -> Mapping[TopicPartition, int]:
        """The offsets in it now. The same object as before if the file has not changed."""
        entry = self._files.entry(self._directory.path_of(self._name))
        if entry != self._entry:
            self._offsets = self._directory.read_checkpoint(self._name)
            self._entry = entry
        return self._offsets


def _as_java_writes(now_ms: int) -> str:
    weekday, month, day, time_of_day, year = datetime.fromtimestamp(now_ms / 1000, UTC).ctime().split()
    return f"{weekday} {month} {day:0>2} {time_of_day} UTC {year}"
