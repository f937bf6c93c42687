"""A directory while a job's tasks write to it: the driver holds its lock from start to end.

The driver loads no partition. It reads the metadata, matches folders and metadata as a store does, lends partitions to
tasks (`duralog.storage.borrowed_partition`), and at the end waits until no task is running.

What happens if something dies:
- A task: its partition is not returned. A second attempt recovers it and starts again; without one, the directory does
  not count as cleanly closed, and the next start recovers it.
- The driver: running tasks keep the directory locked until they end, so no other process opens it before. What they
  have done is complete, checkpoints included. No further task can start. There is no clean-shutdown marker, so the
  next start recovers what needs it.

The marker is written again if it was there and every partition was returned in order; also if it was not, but all
partitions were borrowed, and so recovered, in the meantime.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.storage.borrowed_partition import Loan
from duralog.storage.disk.background import Clock, Scheduler, wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.found_files import directory_of
from duralog.storage.disk.lent_lock import LentLock, SlotState
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.metadata.folder import MetadataFolder
from duralog.storage.metadata.topics import Topic
from duralog.storage.opening import Opening

PATIENCE_SECONDS = 60.0
"""How long the end of a job waits for tasks that Spark has cancelled, but that are still running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What is known of a directory that was locked."""

    directory: LogDirectory
    config: BrokerConfig
    was_clean: bool
    lock: LocalLock
    topics: Mapping[str, Topic]
    offline: Mapping[TopicPartition, Exception]
    metadata: MetadataFolder | None


class HeldDirectory:
    """A locked directory, made by `hold`."""

    def __init__(self, opened: _Opened, job: str) -> None:
        self._opened = opened
        self._job = job
        self.path = opened.directory.path
        self.config = opened.config
        """With the broker configs of the cluster metadata."""
        self.was_clean = opened.was_clean
        """It was cleanly closed when the job began."""
        self.directory = opened.directory
        self.offline = MappingProxyType(dict(opened.offline))
        """Partitions that cannot be served, and why."""
        live = opened.directory.folders().live
        served = [partition for partition in live if partition.topic in opened.topics or partition in opened.offline]
        self._slots = {partition: slot for slot, partition in enumerate(served)}
        self._is_in_doubt = False
        self.partitions: Mapping[TopicPartition, TopicConfig] = MappingProxyType(
            {
                partition: opened.topics[partition.topic].config
                for partition in self._slots
                if partition.topic in opened.topics
                and partition.partition in opened.topics[partition.topic].partitions
                and partition not in opened.offline
            }
        )
        """Those that can be lent, by name, and the configs in force."""
        self.topic_configs = MappingProxyType({name: topic.config for name, topic in opened.topics.items()})
        """Of the topics that have metadata, also if all their partitions are offline."""
        self._lock = LentLock(opened.lock, job, len(self._slots))

    def lend(self, partition: TopicPartition, *, config: TopicConfig | None = None) -> Loan:
        """What a task needs to borrow the partition, with other configs than its own if they are given."""
        error = self.offline.get(partition)
        if error is not None:
            raise StorageError(f"{partition} is offline: {error}") from error
        if partition not in self.partitions:
            raise UnknownTopic(f"there is no partition {partition} in {self.path}")
        topic = self._opened.topics[partition.topic]
        return Loan(
            path=self.path,
            job=self._job,
            slot=self._slots[partition],
            partition=partition,
            topic_id=topic.topic_id,
            leader_epoch=max(topic.leader_epoch(partition.partition), 0),
            topic_config=topic.config if config is None else config,
            broker_config=self.config,
            was_clean=self.was_clean,
        )

    def mark_in_doubt(self) -> None:
        """Do not let the directory count as cleanly closed."""
        self._is_in_doubt = True

    def finish(self, patience_seconds: float) -> None:
        """Wait for the last task, and close the directory as a store does."""
        opened = self._opened
        self._lock.take_back(patience_seconds)
        if opened.metadata is not None:
            opened.metadata.close()
        if self._is_all_in_order():
            opened.directory.put_clean_shutdown()

    def release(self) -> None:
        self._lock.release()

    def _is_all_in_order(self) -> bool:
        was_known = self.was_clean or not self.offline
        as_good_as_closed = {SlotState.RETURNED, SlotState.AS_FOUND} if self.was_clean else {SlotState.RETURNED}
        return was_known and not self._is_in_doubt and as_good_as_closed.issuperset(self._lock.states())


@contextmanager
def hold(
    path: str,
    *,
    config: BrokerConfig | None = None,
    clock: Clock = wall_clock_ms,
    with_metadata: bool = True,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[HeldDirectory]:
    """Lock a directory for a job, and let its tasks write to it.

    Without metadata, the folders are the topics, and their configs come from what can be read of the metadata: for jobs
    that repair a directory. Otherwise folders and metadata are matched as for any writer.

    Raises `StoreLocked` if another process has the directory open for writing.
    """
    check_shared_directory(path)
    path = os.path.abspath(path)  # A task runs in another folder.
    broker_config = replace(
        config or BrokerConfig(), log_cleaner_enable=False, log_segment_delete_delay_ms=0, metadata_log_dir=None
    )
    opened = (_with_metadata if with_metadata else _without_metadata)(path, broker_config, clock)
    try:
        held = HeldDirectory(opened, uuid.uuid4().hex)
    except BaseException:
        opened.lock.release()
        raise
    try:
        yield held
    except BaseException as error:
        try:
            held.finish(patience_seconds)
        except DuralogError as later:
            error.add_note(str(later))
        raise
    else:
        held.finish(patience_seconds)
    finally:
        held.release()


def check_shared_directory(path: str) -> None:
    """Refuse anything but a log directory: holding another folder would turn it into one."""
    if not os.path.isdir(path):
        if "://" in path:
            raise DuralogError(f"{path}: this job needs a directory that the driver and all executors share, not a URL")
        raise DuralogError(f"{path}: there is no such directory")
    _, partition = directory_of(path)
    if partition is not None:
        raise DuralogError(f"{path}: this is one partition: give the log directory that it is in")
    LogDirectory(LocalFileSystem(), path).check()


def _with_metadata(path: str, config: BrokerConfig, clock: Clock) -> _Opened:
    scheduler = Scheduler(lambda: 0, threads=0)
    opened = Opening(LocalFileSystem(), [path], config, clock=clock, scheduler=scheduler).for_lending()
    scheduler.run_due()  # Folders of deleted topics are removed.
    (directory,) = opened.directories.all
    assert isinstance(directory.held_lock, LocalLock)
    return _Opened(
        directory=directory,
        config=opened.config,
        was_clean=opened.was_clean,
        lock=directory.held_lock,
        topics=opened.topics.by_name,
        offline=opened.offline,
        metadata=opened.metadata,
    )


def _without_metadata(path: str, config: BrokerConfig, clock: Clock) -> _Opened:
    files = LocalFileSystem()
    directory = LogDirectory(files, path)
    opening = Opening(files, [path], config, clock=clock, scheduler=Scheduler(lambda: 0, threads=0))
    lock = directory.lock()
    assert isinstance(lock, LocalLock)
    try:
        opened = opening.for_reading()
        was_clean = directory.take_clean_shutdown()
    except BaseException:
        lock.release()
        raise
    return _Opened(
        directory=directory,
        config=opened.config,
        was_clean=was_clean,
        lock=lock,
        topics=opened.topics.by_name,
        offline={},
        metadata=None,
    )
