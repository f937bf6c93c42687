"""Which logs of a store are open, and whether that may still change.

What must always be true:
- `by_partition` is an immutable mapping: when logs are opened or closed it is replaced, so that a holder needs no lock
  and can see that something has changed. In a read-only store, logs are added in place when they are first used.
- A log is open, or unloaded, or offline, or has no folder yet. An unloaded one is as its last owner closed it.
- A change of topics, or of the open logs, holds the lock `changing`. After `end` no change begins.
- In a forked child no log is open, and none can be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk import forks
from duralog.storage.disk.parallel import for_each_partition
from duralog.storage.disk.stoppable_lock import StoppableLock
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.folder import METADATA_PARTITION
from duralog.storage.metadata.topics import Topic
from duralog.storage.opened_store import OpenedStore


class OpenLogs:
    """The open logs of one store."""

    def __init__(self, opened: OpenedStore) -> None:
        self._opened = opened
        self._path = opened.directories.path
        self.read_only = opened.read_only
        self.changing: AbstractContextManager[object] = StoppableLock()
        self.is_closed = False
        self.by_partition: Mapping[TopicPartition, PartitionLog] = opened.logs
        self.loss: str | None = None
        """Why the open store makes no more changes: it has lost the directory's lock."""
        self._process = forks.here
        self.on_load: Callable[[PartitionLog], None] = lambda _: None
        """Called with every log that is loaded for writing after the directory was opened."""
        self._inherited: Mapping[TopicPartition, PartitionLog] | None = None
        """In a forked child: the logs that were open in its parent."""
        forks.belongs_here(self)
        self._serve(opened)

    def _serve(self, opened: OpenedStore) -> None:
        """Let logs find each other."""
        opened.loader.find_log = self.find
        for log in opened.logs.values():
            log.find_log = self.find

    def on_fork(self) -> None:
        self.changing = forks.RefusingLock(self._path, self._process)
        self.is_closed = True
        self._inherited, self.by_partition = self.by_partition, {}

    @property
    def is_inherited(self) -> bool:
        return self._inherited is not None

    def let_go_of_inherited(self) -> None:
        """In a forked child, close its copies of descriptors. Nothing is written."""
        for log in (self._inherited or {}).values():
            log.close()
        self._opened.metadata.close()

    def everywhere(self) -> list[TopicPartition]:
        """All partitions of the directory, open or not, by name."""
        topics = sorted(self._opened.topics.by_name.items())
        return [TopicPartition(name, number) for name, topic in topics for number in topic.partitions]

    def check_open(self) -> None:
        if self.is_closed:
            self._process.check(self._path)
            raise StorageError(f"{self._path}: the store is closed")

    def check_writable(self) -> None:
        self.check_open()
        if self.read_only:
            raise StorageError(f"{self._path}: the directory was opened for reading only")
        if self.loss is not None:
            raise StorageError(self.loss)

    def find(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition. In a read-only store it is loaded on first use.

        None for a partition in the metadata that has no log. Raises for one that is offline or unknown.
        """
        self.check_open()
        error = self._opened.offline.get(partition)
        if error is not None:
            raise StorageError(f"{partition} is offline: {error}") from error
        if partition == METADATA_PARTITION and self._opened.metadata.log is not None:
            return self._opened.metadata.log
        self._topic(self._opened, partition)
        known = self.by_partition.get(partition)
        if known is None and self.read_only:
            return self._load_and_keep(partition)
        if known is None and partition in self._opened.unloaded:
            return self._load_to_write(partition)
        # Again: another thread may have loaded it in between.
        return self.by_partition.get(partition) if known is None else known

    @staticmethod
    def _topic(opened: OpenedStore, partition: TopicPartition) -> Topic:
        topic = opened.topics.get(partition.topic)
        if partition.partition not in topic.partitions:
            raise UnknownTopic(f"there is no partition {partition.partition} of {topic.name} in this directory")
        return topic

    def load(self, partition: TopicPartition) -> PartitionLog:
        """A new log of the partition. The caller closes it."""
        self.check_open()
        opened = self._opened
        return opened.loader.load(partition, self._topic(opened, partition))

    def _load_and_keep(self, partition: TopicPartition) -> PartitionLog:
        # Not under the lock: on an object store, several partitions are loaded at a time.
        opened = self._opened
        loaded = opened.loader.load(partition, self._topic(opened, partition))
        log: PartitionLog | None = None
        with self.changing:
            if not self.is_closed and self._opened is opened:
                # In place: a new mapping for each of ten thousand partitions would be as many copies.
                log = opened.logs.setdefault(partition, loaded)
        if log is not loaded:
            # Another thread was first, or has closed or refreshed the store.
            loaded.close()
        self.check_open()
        return self._load_and_keep(partition) if log is None else log

    def _load_to_write(self, partition: TopicPartition) -> PartitionLog:
        with self.changing:
            self.check_writable()
            known = self.by_partition.get(partition)
            if known is not None:
                return known
            opened = self._opened
            try:
                log = opened.load(partition, opened.metadata.removed_topic_ids, lambda _: None)
            except DuralogError as error:
                # As a partition that cannot be loaded when the directory is opened.
                opened.offline[partition] = error
                opened.unloaded.discard(partition)
                raise StorageError(f"{partition} is offline: {error}") from error
            self.add({partition: log})
            # Not before: if the load is interrupted, the partition must not count as one without a folder.
            opened.unloaded.discard(partition)
            self.on_load(log)
            return log

    def refresh(self, opened: OpenedStore, unchanged: Collection[TopicPartition]) -> None:
        """Serve the directory as it was opened again, with those of the loaded logs that have not changed.

        The others are not closed: they stay as they are for those who hold them.
        """
        with self.changing:
            self.check_open()
            opened.logs.update(
                (partition, log) for partition, log in self.by_partition.items() if partition in unchanged
            )
            metadata_log = self._opened.metadata.log
            if metadata_log is not None and opened.metadata is not self._opened.metadata:
                for segment in metadata_log.view.segments:
                    segment.let_go()
            self._opened, self.by_partition = opened, opened.logs
            self._serve(opened)

    def add(self, added: Mapping[TopicPartition, PartitionLog]) -> None:
        """REQUIRES: `changing` is held."""
        self.by_partition = {**self.by_partition, **added}

    def take(self, partitions: Collection[TopicPartition]) -> list[PartitionLog]:
        """Remove these from the open logs. The caller closes them. REQUIRES: `changing` is held."""
        taken = [log for partition, log in self.by_partition.items() if partition in partitions]
        self.by_partition = {found: log for found, log in self.by_partition.items() if found not in partitions}
        return taken

    def end(self) -> bool:
        """Allow no more changes. Returns False if that was so already."""
        with self.changing:
            was_closed, self.is_closed = self.is_closed, True
        return not was_closed

    def close(self, threads: int) -> dict[TopicPartition, Exception]:
        """Close all, the metadata log last. Returns the errors."""
        failures: dict[TopicPartition, Exception] = {}
        if self.read_only:
            # No disk is waited for, so threads would only cost time.
            for log in list(self.by_partition.values()):
                log.close()
        else:
            outcome = for_each_partition(
                list(self.by_partition), lambda partition, _: self.by_partition[partition].close(), threads=threads
            )
            failures.update(outcome.failures)
        try:
            self._opened.metadata.close()
        except DuralogError as error:
            failures[METADATA_PARTITION] = error
        return failures

    def disown(self, loss: str) -> None:
        """Make no more changes: another process may write to the directory."""
        self.loss = loss
        for log in self._all_logs():
            log.disown(loss)

    def put_clean_shutdown(self, failures: Collection[TopicPartition]) -> None:
        """Mark the directories as closed cleanly of which the next start may trust every file.

        REQUIRES: all logs are closed, except for the failures, and the checkpoints are written.
        """
        directories = self._opened.directories
        doubtful = {TopicPartition(log.topic, log.partition) for log in self._all_logs() if log.in_doubt}
        doubtful.update(failures)
        doubted = directories.directories_of(doubtful)
        with_offline = directories.directories_of(self._opened.offline)
        for directory in directories.owned:
            is_known = directory.was_clean or directory not in with_offline
            if directory.failure is None and is_known and directory not in doubted:
                directory.put_clean_shutdown()

    def _all_logs(self) -> list[PartitionLog]:
        metadata_log = self._opened.metadata.log
        return [*self.by_partition.values()] if metadata_log is None else [metadata_log, *self.by_partition.values()]
