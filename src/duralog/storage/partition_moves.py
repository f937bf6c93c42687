"""Moves partitions from one directory of a store to another, while records are appended. In Kafka: AlterReplicaLogDirs.

The steps, each of which a crash may follow:

1. A copy is made in the new directory, in the folder `TOPIC-N.<id>-future`, and catches up with the log.
2. Writers wait. The copy gets the rest, is synced and closed; the checkpoints of the new directory get its offsets.
3. The cluster metadata names the new directory. From here on, the copy is the partition.
4. The old folder is renamed to `-delete`, then the copy to the name of the partition.
5. The log continues in the new files, and writers with it. The old ones are removed later.

A start after a crash before step 3 begins again; after it, it completes the renames
(`duralog.storage.future_folders`). After a clean stop, a start continues the copy, unless the log has changed since
in another way than by appends. An error before step 3 removes the copy, and the partition stays where it was. A log is
not compacted while it moves. Kafka copies in the same way, but renames the copy first: a crash in between leaves the
partition in two directories, and Kafka does not start.
"""

from __future__ import annotations

import logging
import os.path
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from duralog.errors import DuralogError, InvalidConfig, StorageError
from duralog.format.filenames import FolderState, PartitionFolder
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.disk.background import Scheduler
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.open_logs import OpenLogs
from duralog.storage.opened_store import OpenedStore
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER
from duralog.storage.upkeep import Upkeep

ShowMove = Callable[["PartitionMove"], None]

_SMALL_LAG_BYTES = 4 << 20
"""The most bytes that writers wait for at the end."""

_logger = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The move was cancelled, or the store is closing."""


@dataclass(eq=False, kw_only=True)
class PartitionMove:
    """A partition that is being moved."""

    partition: TopicPartition
    source: str
    """The directory that it is in."""
    target: str
    """The directory that it moves to."""
    log: PartitionLog = field(repr=False)
    directory: LogDirectory = field(repr=False)
    folder: PartitionFolder = field(repr=False)
    copy: PartitionLog | None = field(default=None, repr=False)
    is_cancelled: bool = False
    is_decided: bool = field(default=False, repr=False)
    """The metadata names the new directory."""

    @property
    def copied_bytes(self) -> int:
        """The size of the copy."""
        return 0 if self.copy is None else self.copy.size_bytes

    @property
    def offset_lag(self) -> int:
        """How many offsets the copy is behind."""
        return max(self.log.end_offset - (0 if self.copy is None else self.copy.end_offset), 0)


class PartitionMoves:
    """The moves of one store. Any thread may call any method; each move runs on one thread."""

    def __init__(
        self,
        files: FileSystem,
        opened: OpenedStore,
        logs: OpenLogs,
        cleaner: Cleaner,
        upkeep: Upkeep,
        report_error: Callable[[str, BaseException], None],
    ) -> None:
        """`report_error` is called with what failed on a thread of this."""
        self._files = files
        self._opened = opened
        self._directories = opened.directories
        self._logs = logs
        self._cleaner = cleaner
        self._upkeep = upkeep
        self._guard = threading.Condition()
        self._moves: dict[TopicPartition, PartitionMove] = {}
        self._runners: list[threading.Thread] = []
        """The threads that run moves."""
        self._is_stopping = False
        self._report_error = report_error
        self._scheduler: Scheduler | None = None
        """Its threads run moves. There is none before the first."""

    @property
    def running(self) -> tuple[PartitionMove, ...]:
        with self._guard:
            return tuple(self._moves.values())

    def directory_at(self, path: str) -> LogDirectory:
        """The log directory at a path. Raises `InvalidConfig` if the store has none there."""
        real = os.path.realpath(path)
        found = next((each for each in self._directories.all if os.path.realpath(each.path) == real), None)
        if found is None:
            known = ", ".join(each.path for each in self._directories.all)
            raise InvalidConfig(f"{path} is not a log directory of this store, which has {known}")
        return found

    def begin(self, log: PartitionLog, path: str) -> PartitionMove | None:
        """Prepare to move a log to the directory at this path. None if it is there, or on its way there.

        A move of the partition to another directory is cancelled.
        """
        target = self.directory_at(path)
        partition = TopicPartition(log.topic, log.partition)
        with self._logs.changing:
            self._logs.check_writable()
            if target.failure is not None:
                raise StorageError(f"{partition} cannot move to {target.path}, which is offline: {target.failure}")
            if self._logs.by_partition.get(partition) is not log:
                raise StorageError(f"{partition} cannot move: it is offline, or its topic was deleted")
            home = self._directories.directory_of(partition)
            with self._guard:
                known = self._moves.get(partition)
                if known is not None and known.directory is target:
                    return None
                if known is not None:
                    known.is_cancelled = True
            if home is target:
                return None
            self._check_metadata(partition)
            left = [each for each in self._opened.futures if _partition_of(each[1]) == partition]
            for directory, folder in left:
                self._opened.futures.remove((directory, folder))
                if directory is target:
                    return self._register(log, home, target, folder)  # An earlier process has begun it.
                self._remove_copy(directory, folder)
            folder = PartitionFolder(*partition, FolderState.FUTURE, uuid.uuid4().hex)
            return self._register(log, home, target, folder)

    def resume(self) -> list[PartitionMove]:
        """The moves that an earlier process was interrupted in."""
        resumed = []
        with self._logs.changing:
            for directory, folder in self._opened.futures:
                partition = _partition_of(folder)
                log = self._logs.by_partition.get(partition)
                if log is not None and directory.failure is None and partition not in self._moves:
                    home = self._directories.directory_of(partition)
                    resumed.append(self._register(log, home, directory, folder))
            self._opened.futures.clear()
        return resumed

    def _register(
        self, log: PartitionLog, home: LogDirectory, target: LogDirectory, folder: PartitionFolder
    ) -> PartitionMove:
        partition = TopicPartition(log.topic, log.partition)
        move = PartitionMove(
            partition=partition, source=home.path, target=target.path, log=log, directory=target, folder=folder
        )
        with self._guard:
            self._moves[partition] = move
        return move

    def _check_metadata(self, partition: TopicPartition) -> None:
        if not self._opened.topics.is_in_metadata(partition.topic):
            raise StorageError(f"{partition} cannot move: the cluster metadata does not have its topic")
        leader_id = self._opened.metadata.leader_id()
        if leader_id not in (None, self._opened.placement.node_id):
            raise StorageError(f"{partition} cannot move: node {leader_id} leads the cluster: move it there")

    # One move

    def run(self, move: PartitionMove, show: ShowMove | None = None) -> bool:
        """Copy the log and switch over to it. Returns False if the move was cancelled, or the store is closing."""
        runner = threading.current_thread()
        with self._guard:
            self._runners.append(runner)
        try:
            return self._run(move, show)
        finally:
            with self._guard:
                self._runners.remove(runner)
                self._guard.notify_all()

    def _run(self, move: PartitionMove, show: ShowMove | None) -> bool:
        is_done = False
        try:
            with self._cleaner.kept_away([move.partition], "it is moved to another directory"):
                self._copy(move, show)
                self._change_over(move)
            is_done = True
        except _StoppedError:
            return False
        except DuralogError:
            # A log that was closed meanwhile is not an error of the move.
            if not self._is_unwanted(move):
                raise
            return False
        finally:
            self._end(move, is_done=is_done)
        _logger.info("%s was moved from %s to %s", move.partition, move.source, move.target)
        self._upkeep.checkpoint()
        self._cleaner.checkpoint.write()
        return True

    def run_later(self, move: PartitionMove) -> None:
        """Run it on a thread of its own. As in Kafka, there are as many threads as directories."""
        name = f"moving {move.partition} to {move.target}"

        def run() -> None:
            try:
                self.run(move)
            except DuralogError as error:
                self._report_error(name, error)

        with self._logs.changing:
            if self._scheduler is None:
                self._scheduler = Scheduler(threads=len(self._directories.all), name="duralog-moves")
            self._scheduler.after(0, name, run)

    def cancel(self, partitions: Iterable[TopicPartition]) -> None:
        """Give up the moves of these partitions. Their copies are removed."""
        with self._guard:
            for partition in partitions:
                if partition in self._moves:
                    self._moves[partition].is_cancelled = True

    def cancel_in(self, directory: LogDirectory) -> None:
        """Give up the moves to a directory that is offline."""
        self.cancel([move.partition for move in self.running if move.directory is directory])

    def stop(self) -> None:
        """Interrupt all moves, and wait for them: the store is closing. The next start continues them.

        Also for those of callers: nothing may be written after the directories are unlocked.
        """
        with self._guard:
            self._is_stopping = True
        if self._scheduler is not None:
            self._scheduler.stop()
        here = threading.current_thread()
        with self._guard:
            self._guard.wait_for(lambda: all(runner is here for runner in self._runners))

    def _copy(self, move: PartitionMove, show: ShowMove | None) -> None:
        self._check(move)
        home = self._directories.directory_of(move.partition)
        if not (move.directory.was_clean and home.was_clean):
            # After a crash, some of the copy may be missing in the middle, or some of the log at its end.
            self._files.remove_folder(move.directory.path_of(move.folder.name))
        move.copy = self._open_copy(move)
        if not move.log.has_beginning(move.copy):
            move.copy.close()
            self._files.remove_folder(move.copy.folder)
            move.copy = self._open_copy(move)

        def on_bytes(_: int) -> None:
            self._check(move)
            if show is not None:
                show(move)

        while True:
            before = move.log.appended_bytes
            move.log.copy_new(move.copy, on_bytes)
            # Not under the lock of the log: this is most of what has to be synced.
            move.copy.flush()
            on_bytes(0)
            if move.log.appended_bytes - before <= _SMALL_LAG_BYTES:
                break
        self._copy_quarantine(move)

    def _open_copy(self, move: PartitionMove) -> PartitionLog:
        topic = self._opened.topics.get(move.partition.topic)
        return self._opened.loader.open_copy(move.partition, topic, move.directory, move.folder)

    def _change_over(self, move: PartitionMove) -> None:
        copy, log, partition = move.copy, move.log, move.partition
        assert copy is not None
        directory_id = move.directory.directory_id
        assert directory_id is not None
        with self._logs.changing, log.writers_waiting():
            self._check(move)
            self._logs.check_writable()
            log.complete(copy)
            self._directories.also_in(partition, move.directory)
            self._upkeep.checkpoint()
            self._cleaner.checkpoint.write()
            if move.directory.checkpoint_error is not None:
                raise StorageError(f"{partition} cannot move to {move.target}: {move.directory.checkpoint_error}")
            self._files.sync_folder(copy.folder)
            self._files.sync_folder(move.directory.path)
            if not self._opened.topics.assign_directories({partition: directory_id}):
                raise StorageError(f"{partition} cannot move: the metadata version is too old to name directories")
            move.is_decided = True
            try:
                self._rename(move)
            except BaseException as error:
                # The metadata names the new directory: only the next start can complete this.
                log.disown(f"its move to {move.target} was interrupted, open the store again: {error}")
                raise

    def _rename(self, move: PartitionMove) -> None:
        partition, log, copy = move.partition, move.log, move.copy
        assert copy is not None
        home = self._directories.directory_of(partition)
        old = home.path_of(PartitionFolder(*partition, FolderState.DELETED, uuid.uuid4().hex).name)
        live = log.folder

        def load() -> PartitionLog:
            self._files.sync_folder(home.path)
            self._files.rename(copy.folder, move.directory.folder_of(partition))
            self._files.sync_folder(move.directory.path)
            self._directories.place({partition: move.directory})
            return self._opened.loader.load_moved(partition, self._opened.topics.get(partition.topic), copy)

        log.change_over(old, lambda: self._files.rename(live, old), load)

    def _copy_quarantine(self, move: PartitionMove) -> None:
        """The quarantine moves with the partition."""
        assert move.copy is not None
        source = f"{move.log.folder}/{QUARANTINE_FOLDER}"
        if not self._files.exists(source):
            return
        target = f"{move.copy.folder}/{QUARANTINE_FOLDER}"
        self._files.make_folder(target)
        for entry in self._files.list(source):
            file = self._files.open(f"{source}/{entry.name}")
            made = self._files.open(f"{target}/{entry.name}", writable=True, create=True)
            made.truncate(0)
            for position in range(0, file.size, _SMALL_LAG_BYTES):
                made.append(file.read(position, min(_SMALL_LAG_BYTES, file.size - position)))
            made.sync()
        self._files.sync_folder(target)

    def _check(self, move: PartitionMove) -> None:
        if self._is_unwanted(move):
            raise _StoppedError

    def _is_unwanted(self, move: PartitionMove) -> bool:
        """It was cancelled, its topic deleted, its directory taken offline, or the store is closing."""
        if self._logs.by_partition.get(move.partition) is not move.log:
            move.is_cancelled = True
        return move.is_cancelled or self._is_stopping or self._logs.is_closed

    def _end(self, move: PartitionMove, *, is_done: bool) -> None:
        """A copy that is not needed is removed; one that the next start continues with is closed."""
        with self._guard:
            is_latest = self._moves.get(move.partition) is move
            if is_latest:
                del self._moves[move.partition]
        if is_latest:
            self._directories.also_in(move.partition, None)
        if is_done or move.is_decided:
            return
        if move.copy is not None:
            try:
                move.copy.close()
            except DuralogError:
                move.is_cancelled = True  # It cannot be continued.
        if (self._is_stopping or self._logs.is_closed) and not move.is_cancelled:
            return
        if move.log.in_doubt:
            return  # Its disk has failed: the copy may be all that is left. The next start makes another one.
        self._remove_copy(move.directory, move.folder)

    def _remove_copy(self, directory: LogDirectory, folder: PartitionFolder) -> None:
        path = directory.path_of(folder.name)
        if directory.failure is None and self._files.exists(path):
            deleted = directory.path_of(replace(folder, state=FolderState.DELETED).name)
            with suppress(DuralogError):  # The next start removes it.
                self._files.rename(path, deleted)
                self._files.sync_folder(directory.path)
                self._files.remove_folder(deleted)


def _partition_of(folder: PartitionFolder) -> TopicPartition:
    return TopicPartition(folder.topic, folder.partition)
