"""The files of a log directory that belong to no partition: who owns it, how it was closed, and the checkpoints.

    .lock                     held as long as the directory is open for writing
    meta.properties           which node of which cluster it belongs to
    .kafka_cleanshutdown      there while the directory is closed and nothing has to be recovered
    *-checkpoint              one offset for each partition

What must always be true:
- The clean-shutdown marker is on disk only while every log is closed and flushed. It is taken away, for good, before
  the first log is loaded, and written as the last thing of all.
- Nothing is written without the lock. It is on a file that somebody may remove, so that another process can lock a new
  one: before each write here, and before a log is opened, flushed, rolled or closed, `check_lock` finds out.

A damaged checkpoint is worth no more than a missing one: it is logged, and its partitions count as not in it. A damaged
`meta.properties` is an error, since nobody should write to a directory without knowing whose it is.
"""

from __future__ import annotations

import logging
import os.path
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

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
from duralog.format.uuids import random_uuid
from duralog.storage.disk.file_system import FileSystem, Lock

DEFAULT_NODE_ID = 1
_NO_BROKER_EPOCH = -1

_logger = logging.getLogger(__name__)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of a directory that are named like partitions, without Kafka's `-future` and `-stray` ones."""

    live: Sequence[TopicPartition]
    """Sorted. Without the metadata log. Those that the metadata does not know may not be partitions."""
    deleted: Sequence[PartitionFolder]
    """Of deleted topics, to be removed."""


class LogDirectory:
    """One log directory. Methods that write are for a directory that is locked."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        if not path:
            # Its files would be those of the root directory.
            raise StorageError("cannot open a directory without a name: give its path")
        self._files = file_system
        self.path = path
        self._lock: Lock | None = None
        self._checkpoints: dict[str, dict[TopicPartition, int]] = {}
        self._checkpoint_lock = threading.Lock()
        self._broker_epoch = _NO_BROKER_EPOCH

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def folder_of(self, partition: TopicPartition) -> str:
        return self.path_of(PartitionFolder(partition.topic, partition.partition).name)

    def lock(self) -> Lock:
        """Lock the directory against all other writers, Kafka's included; `StoreLocked` if there is one."""
        self.make()
        self._lock = self._files.lock(self.path_of(LOCK))
        return self._lock

    def check_lock(self) -> None:
        """Raise `LockLost` if the directory was locked here, and the lock does not keep others out any more."""
        if self._lock is not None:
            self._lock.check()

    def make(self) -> None:
        """Make the directory if it is not there, and its name survive a loss of power."""
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
        for entry in self._files.list(self.path):
            folder = parse_partition_folder(entry.name) if entry.is_folder else None
            if folder is None or folder.topic == CLUSTER_METADATA:
                continue
            if folder.state is FolderState.LIVE:
                live.append(TopicPartition(folder.topic, folder.partition))
            elif folder.state is FolderState.DELETED:
                deleted.append(folder)
        return Folders(sorted(live), deleted)

    def are_partitions(self, folders: Iterable[TopicPartition]) -> bool:
        """Whether folders of one topic that the metadata does not know are partitions, and not only named like some.

        They are if one of them has files of a log, or if the checkpoint of recovery points, which must have been read,
        names one: it had files then.
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
        """Refuse a folder with nothing of a log in it, and one partition's."""
        if self.has_logs():
            return
        if has_partition_files(self._files.list_names(self.path)):
            raise StorageError(f"{self.path}: this is one partition: give the log directory that it is in")
        raise StorageError(
            f"{self.path}: no files of a log in here: check the path, or make a topic with"
            f" duralog topic create {self.path} --topic NAME"
        )

    def _names_in(self, folder: str) -> Collection[str]:
        try:
            return self._files.list_names(folder)
        except StorageError:
            # It may be a partition. Whoever loads it reports the error.
            return (PARTITION_METADATA,)

    def read_meta(self) -> MetaProperties | None:
        path = self.path_of(META_PROPERTIES)
        if not self._files.exists(path):
            return None
        try:
            return decode_meta_properties(self._files.read_all(path))
        except CorruptRecord as error:
            raise error.in_file(path) from None

    def write_new_meta(self, node_id: int | None, now_ms: int) -> MetaProperties:
        """Give a directory that nobody owns to a node of a new cluster."""
        meta = MetaProperties(
            version=META_PROPERTIES_VERSION,
            cluster_id=random_uuid(),
            node_id=DEFAULT_NODE_ID if node_id is None else node_id,
            directory_id=random_uuid(),
        )
        data = encode_meta_properties(meta, written=_as_java_writes(now_ms))
        self._files.replace(self.path_of(META_PROPERTIES), data)
        return meta

    def take_clean_shutdown(self) -> bool:
        """Whether the directory was closed cleanly. From now on it is not, until `put_clean_shutdown`."""
        path = self.path_of(CLEAN_SHUTDOWN)
        if not self._files.exists(path):
            return False
        try:
            broker_epoch = decode_json_object(self._files.read_all(path)).get("brokerEpoch")
        except CorruptRecord:
            broker_epoch = None  # That the file is there is all that counts.
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
        """The offsets in one of the checkpoint files."""
        path = self.path_of(name)
        offsets: dict[TopicPartition, int] = {}
        if self._files.exists(path):
            try:
                for entry in decode_offset_checkpoint(self._files.read_all(path)):
                    offsets[TopicPartition(entry.topic, entry.partition)] = entry.offset
            except CorruptRecord as error:
                _logger.warning("not used: %s", error.in_file(path))
                return {}
            self._checkpoints[name] = offsets
        return offsets

    def last_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets that one of the checkpoint files was last found with, or given. Nothing is read."""
        return self._checkpoints.get(name, {})

    def write_checkpoint(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace a checkpoint file, unless it says the same already. The later of two calls collects later."""
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


def _as_java_writes(now_ms: int) -> str:
    weekday, month, day, time_of_day, year = datetime.fromtimestamp(now_ms / 1000, UTC).ctime().split()
    return f"{weekday} {month} {day:0>2} {time_of_day} UTC {year}"
