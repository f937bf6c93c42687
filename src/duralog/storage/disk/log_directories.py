"""The directories of Kafka's `log.dirs`: which partition is in which of them, and their checkpoints as one.

What must always be true:
- A partition is in one directory, its home. The same partition in two of them is an error that names both.
- The checkpoints of a directory have the offsets of the partitions in it. They are read and written here as if there
  were one directory; an entry of a partition that has its home elsewhere does not count.
- A directory that has failed (`LogDirectory.failure`) is neither read nor written any more.

The metadata log is in the first directory, or in that of `metadata.log.dir`, which may hold nothing else.
"""

from __future__ import annotations

import logging
import os.path
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack

from duralog.errors import InvalidConfig, StorageError, StoreLocked
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import Folders, LogDirectory

_METADATA = TopicPartition(CLUSTER_METADATA, 0)

_MOST_LISTINGS = 20
_RELISTED_AFTER_SECONDS = 0.01

_logger = logging.getLogger(__name__)


def log_directories(path: str | Sequence[str], configured: Sequence[str] | None) -> tuple[str, ...]:
    """The directories of a store that is opened with this path or these.

    `configured` are those of `log.dirs`: they are meant all together if one of them is given.
    """
    given = (path,) if isinstance(path, str) else tuple(path)
    if not given:
        raise StorageError("cannot open a store without a directory: give a path, or several")
    if len(given) == 1 and configured is not None and len(configured) > 1:
        first = os.path.realpath(given[0])
        if first in map(os.path.realpath, configured):
            return tuple(configured)
    return given


def check_distinct(paths: Sequence[str]) -> None:
    """Refuse a directory that is given twice, also by a link, and one inside another."""
    known: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        for other, given in known.items():
            if real == other:
                raise InvalidConfig(f"log.dirs: {given} and {path} are the same directory: give it once")
            if os.path.commonpath((real, other)) in (real, other):
                inner, outer = (path, given) if real.startswith(other) else (given, path)
                raise InvalidConfig(f"log.dirs: {inner} is inside {outer}: give separate directories")
        known[real] = path


def _may_be_moving(found: Mapping[LogDirectory, Folders]) -> bool:
    """Whether a partition may have moved to another directory between two of these listings."""
    live = [partition for folders in found.values() for partition in folders.live]
    known = set(live)
    return len(known) < len(live) or any(
        folders.future or any((folder.topic, folder.partition) not in known for folder in folders.deleted)
        for folders in found.values()
    )


def _is_between(found: Mapping[LogDirectory, Folders]) -> bool:
    """Whether the old folder of a partition has been renamed, and the new one has not got its name yet."""
    known = {partition for folders in found.values() for partition in folders.live}
    copied = {(folder.topic, folder.partition) for folders in found.values() for folder in folders.future}
    old = {(folder.topic, folder.partition) for folders in found.values() for folder in folders.deleted}
    return not copied.isdisjoint(old - known)


class LogDirectories:
    """All log directories of a store. `lock` is called before anything is written."""

    def __init__(self, directories: Sequence[LogDirectory], metadata: LogDirectory | None = None) -> None:
        self.all = tuple(directories)
        """In their order, without a directory that only holds the metadata log."""
        self.metadata = directories[0] if metadata is None else metadata
        self.path = self.all[0].path
        self._homes: Mapping[TopicPartition, LogDirectory] = {_METADATA: self.metadata}
        self._changing = threading.Lock()
        self._is_read_only = True
        self._second_homes: dict[TopicPartition, LogDirectory] = {}
        self.on_failure: Callable[[LogDirectory, Exception], bool] | None = None
        """Called when a checkpoint cannot be written, if there are several directories. Whether it goes offline."""

    @classmethod
    def at(cls, files: FileSystem, paths: Sequence[str], metadata_path: str | None = None) -> LogDirectories:
        """The metadata log is searched in all directories if no path is given for it."""
        directories = [LogDirectory(files, path) for path in paths]
        if len(paths) > 1:
            check_distinct(paths)
        if metadata_path is None:
            # With one directory there is nothing to ask; on an object store, that would be two requests.
            several = directories if len(directories) > 1 else ()
            return cls(
                directories, next((found for found in several if files.exists(found.folder_of(_METADATA))), None)
            )
        real = os.path.realpath(metadata_path)
        known = next((found for found in directories if os.path.realpath(found.path) == real), None)
        if known is None:
            check_distinct([*paths, metadata_path])
        return cls(directories, LogDirectory(files, metadata_path) if known is None else known)

    @property
    def are_several(self) -> bool:
        return len(self.all) > 1

    @property
    def owned(self) -> tuple[LogDirectory, ...]:
        """All, with that of the metadata log."""
        return self.all if self.metadata in self.all else (self.metadata, *self.all)

    @property
    def has_metadata_log(self) -> bool:
        return self.metadata.has_folder(_METADATA)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.all if directory.failure is None]

    @property
    def failed(self) -> list[LogDirectory]:
        return [directory for directory in self.all if directory.failure is not None]

    # Locks

    def lock(self) -> None:
        """Lock all directories. One that cannot be used is set aside, as in Kafka. Another process's lock is an error.

        Raises if none is left, or if that of the metadata log cannot be used.
        """
        self._is_read_only = False
        with ExitStack() as locked:
            for directory in self.owned:
                try:
                    locked.callback(directory.lock().release)
                except StoreLocked:
                    raise
                except StorageError as error:
                    self.set_aside(directory, error)
            for directory in self.online:
                if directory is not self.metadata and directory.has_folder(_METADATA):
                    raise InvalidConfig(
                        f"log.dirs: {directory.path} has a metadata log, but that of this store is in"
                        f" {self.metadata.path}: a store has only one. Set metadata.log.dir to the directory that has"
                        " the"
                        f" topics, and move {CLUSTER_METADATA}-0 out of the other one"
                    )
            locked.pop_all()

    def set_aside(self, directory: LogDirectory, error: Exception) -> None:
        """Open the store without a directory. Raises if the store cannot do without it.

        Readers can do without the metadata.
        """
        is_last = all(other.failure is not None for other in self.all if other is not directory)
        if is_last or (directory is self.metadata and not self._is_read_only):
            raise error
        directory.failure = error
        _logger.error("%s is offline, and so are its partitions: %s", directory.path, error)

    def release(self) -> None:
        for directory in self.owned:
            if directory.held_lock is not None:
                directory.held_lock.release()

    def check_lock(self) -> None:
        """Raise `LockLost` if another process may have locked one of the directories."""
        for directory in self.owned:
            if directory.failure is None:
                directory.check_lock()

    # Partitions

    def directory_of(self, partition: TopicPartition) -> LogDirectory:
        """The home of a partition; the first directory for one that has no folder."""
        home = self._homes.get(partition)
        if home is not None:
            return home
        return next(iter(self.online), self.all[0])

    def home_of(self, partition: TopicPartition) -> LogDirectory | None:
        """None for a partition that has no folder."""
        return self._homes.get(partition)

    def folder_of(self, partition: TopicPartition) -> str:
        return self.directory_of(partition).folder_of(partition)

    def directories_of(self, partitions: Iterable[TopicPartition]) -> list[LogDirectory]:
        return list(dict.fromkeys(map(self.directory_of, partitions)))

    def holding(self, directory: LogDirectory) -> list[TopicPartition]:
        """The partitions whose home this is, without the metadata log."""
        return [found for found, home in self._homes.items() if home is directory and found != _METADATA]

    def place(self, homes: Mapping[TopicPartition, LogDirectory]) -> None:
        """From now on, these partitions have these homes."""
        with self._changing:
            self._homes = {**self._homes, **homes}

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions have no home any more."""
        with self._changing:
            self._homes = {found: home for found, home in self._homes.items() if found not in partitions}

    def emptiest(self, count: int, cordoned: Collection[str] = ()) -> list[LogDirectory]:
        """Where the next partitions go: each into the directory with the fewest, as in Kafka. The first of equals."""
        online = self.online
        open_ones = [found for found in online if os.path.abspath(found.path) not in cordoned] or online
        if len(open_ones) == 1:
            return open_ones * count
        held = dict.fromkeys(open_ones, 0)
        for partition, home in self._homes.items():
            if partition != _METADATA and home in held:
                held[home] += 1
        chosen: list[LogDirectory] = []
        for _ in range(count):
            emptiest = min(open_ones, key=held.__getitem__)
            held[emptiest] += 1
            chosen.append(emptiest)
        return chosen

    def also_in(self, partition: TopicPartition, directory: LogDirectory | None) -> None:
        """Write the offsets of a partition into the checkpoints of this directory, too, while it moves there."""
        with self._changing:
            if directory is None:
                self._second_homes.pop(partition, None)
            else:
                self._second_homes[partition] = directory

    def find_folders(self) -> dict[LogDirectory, Folders]:
        """List all directories, and learn the homes of the partitions in them.

        Raises `StorageError` if a partition is in two of them.
        """
        if self._is_read_only:
            for directory in self.all:
                directory.failure = None  # It may be back.
        found = self._list_all()
        if self._is_read_only and self.are_several:
            # The directories are listed one after the other, and another process may move a partition meanwhile.
            for _ in range(_MOST_LISTINGS):
                before, found = found, self._list_all() if _may_be_moving(found) else found
                if before == found and not _is_between(found):
                    break
                time.sleep(_RELISTED_AFTER_SECONDS)
        homes: dict[TopicPartition, LogDirectory] = {_METADATA: self.metadata}
        for directory, folders in found.items():
            for partition in folders.live:
                other = homes.setdefault(partition, directory)
                if other is not directory:
                    raise StorageError(
                        f"{partition} is in two directories, {other.folder_of(partition)} and"
                        f" {directory.folder_of(partition)}: remove one of them, after a disk failure that of the"
                        " failed disk"
                    )
        with self._changing:
            self._homes = homes
        return found

    def _list_all(self) -> dict[LogDirectory, Folders]:
        found: dict[LogDirectory, Folders] = {}
        for directory in self.online:
            try:
                found[directory] = directory.folders()
            except StorageError as error:
                self.set_aside(directory, error)
        return found

    def live(self) -> list[TopicPartition]:
        """All partitions that have a folder, sorted, by the last `find_folders`."""
        return sorted(found for found in self._homes if found != _METADATA)

    def are_partitions(self, folders: Iterable[TopicPartition]) -> bool:
        """Whether these folders of one topic, which is not in the metadata, are partitions."""
        return any(self.directory_of(partition).are_partitions([partition]) for partition in folders)

    def check(self) -> None:
        """Refuse folders without log files."""
        if not any(directory.has_logs() for directory in self.online):
            self.online[0].check()

    # Checkpoints

    def read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets in the checkpoint files of this name."""
        if not self.are_several and self.metadata is self.all[0]:
            return self.all[0].read_checkpoint(name)
        offsets: dict[TopicPartition, int] = {}
        for directory in self.online:
            for partition, offset in directory.read_checkpoint(name).items():
                if self._homes.get(partition, directory) is directory:
                    offsets[partition] = offset
        return offsets

    def last_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets that were last read or written. Does no I/O."""
        if len(self.all) == 1:
            return self.all[0].last_checkpoint(name)
        return {found: offset for directory in self.online for found, offset in directory.last_checkpoint(name).items()}

    def write_checkpoint(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace the checkpoint files whose offsets have changed."""
        if not self.are_several:
            self.all[0].write_checkpoint(name, collect)
            return
        failed: StorageError | None = None
        for directory in self.online:
            try:
                directory.write_checkpoint(name, lambda home=directory: self._of(home, collect()))  # type: ignore[misc]
            except StorageError as error:
                if self.on_failure is not None and self.on_failure(directory, error):
                    directory.checkpoint_error = error
                else:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _of(self, directory: LogDirectory, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            found: offset
            for found, offset in offsets.items()
            if self.directory_of(found) is directory or self._second_homes.get(found) is directory
        }
