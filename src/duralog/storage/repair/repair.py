"""Repairs a log directory: rebuilds indexes, quarantines damage, restores valid batches.

Every partition is verified first; a sound one is not touched. `duralog.storage.repair.partition_repair` repairs the
others; afterwards the checkpoints are corrected.

What must always be true: the directory is locked. Until everything is done it does not count as closed cleanly, so that
the next start after a crash, or after a repair that failed half-way, recovers it. A repair that was refused and has
changed nothing leaves it as it was: recovery would truncate what must not be touched.

A dry run does the same on a `RehearsalFileSystem`: its report is exact.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    FolderState,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA
from duralog.format.topic_partition import TopicPartition
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import ShowVerification, Verification
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem, Lock
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.disk.rehearsal import RehearsalFileSystem
from duralog.storage.repair.folder_changes import Action
from duralog.storage.repair.partition_repair import PartitionRepair, PartitionRepairer, name_of
from duralog.storage.store import Store


class Repair:
    """One repair of a directory, or of some of its partitions."""

    def __init__(
        self,
        path: str,
        *,
        topics: Collection[str] | None = None,
        partition: int | None = None,
        restore: bool = False,
        dry_run: bool = False,
        clock: Clock = wall_clock_ms,
    ) -> None:
        """REQUIRES: `path` is a log directory. Raises `StoreLocked` if another process has it open for writing."""
        self.dry_run = dry_run
        self.actions: list[Action] = []
        """On the files of the directory itself."""
        self.left: list[CorruptRecord] = []
        """Findings of the directory that cannot be repaired here."""
        self._fs: FileSystem = RehearsalFileSystem(LocalFileSystem()) if dry_run else LocalFileSystem()
        self._directory = LogDirectory(self._fs, path)
        self._lock = lock_for_repair(self._directory, dry_run=dry_run)
        try:
            self._verification = Verification(path, topics=topics, partition=partition)
            self._repairer = PartitionRepairer(
                self._fs,
                self._directory,
                config_of=TopicConfigs(path).of,
                restore=restore,
                dry_run=dry_run,
                may_cut_metadata=topics is not None and CLUSTER_METADATA in topics,
                clock=clock,
            )
            self._was_clean = self._directory.take_clean_shutdown()
        except BaseException:
            self._release()
            raise

    @property
    def size_bytes(self) -> int:
        """The size of the logs to check."""
        return self._verification.size_bytes

    def run(self, show: ShowVerification | None = None) -> Iterator[PartitionRepair]:
        """Repair partition after partition."""
        repairs: list[PartitionRepair] = []
        try:
            for report in self._verification.run(show):
                partition = repairable(report)
                if partition is not None:
                    repairs.append(self._repairer.repair(report, partition))
                    yield repairs[-1]
            self.actions += self._repairer.actions
            self.actions += repair_checkpoints(self._fs, self._directory, repairs)
            self.left += left_of(self._verification.errors, repairs)
            if self._was_clean and not self._repairer.is_in_doubt:
                self._directory.put_clean_shutdown()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


class TopicConfigs:
    """The configs of a directory's topics; Kafka's defaults where nothing is known."""

    def __init__(self, path: str) -> None:
        with Store(path, read_only=True) as store:
            self._by_topic = {topic: store.topic_config(topic) for topic in store.topics()}

    def of(self, topic: str) -> TopicConfig:
        return self._by_topic.get(topic) or TopicConfig()


def lock_for_repair(directory: LogDirectory, *, dry_run: bool) -> Lock | None:
    """Lock the directory. A dry run shares the lock if it can: the files must not change while they are checked."""
    if not os.path.isdir(directory.path):
        raise DuralogError(f"{directory.path}: there is no such directory")
    if dry_run:
        lock = directory.path_of(LOCK)
        return LocalLock(lock, shared=True) if os.access(lock, os.R_OK) else None
    return directory.lock()


def repairable(report: PartitionReport) -> TopicPartition | None:
    """The partition that was verified, if it is one that is served."""
    folder = report.partition
    if folder is None or folder.state is not FolderState.LIVE:
        return None
    return TopicPartition(folder.topic, folder.partition)


def repair_checkpoints(fs: FileSystem, directory: LogDirectory, repairs: Iterable[PartitionRepair]) -> list[Action]:
    """Remove or correct entries that lie outside of a checked log."""
    end_offsets = {repaired.partition: repaired.end_offset for repaired in repairs if repaired.failure is None}
    actions: list[Action] = []
    for name in OFFSET_CHECKPOINTS:
        path = directory.path_of(name)
        if not fs.exists(path):
            continue
        try:
            decode_offset_checkpoint(fs.read_all(path))
        except CorruptRecord:
            directory.write_checkpoint(name, dict)
            actions.append(Action("emptied", path, "it could not be read"))
            continue
        corrected, details = _corrected(name, directory.read_checkpoint(name), end_offsets)
        actions += [Action("corrected", path, detail) for detail in details]
        directory.write_checkpoint(name, corrected.copy)
    return actions


def _corrected(
    name: str, offsets: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """The corrected entries of a checkpoint, and a message about each change."""
    corrected = dict(offsets)
    details: list[str] = []
    for partition, offset in offsets.items():
        end = end_offsets.get(partition)
        if end is None or 0 <= offset <= end:
            continue
        if name in (LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT) or offset < 0:
            del corrected[partition]
            details.append(f"{partition}: {offset} taken out, the log ends at {end}")
        else:
            corrected[partition] = end
            details.append(f"{partition}: {offset} becomes {end}, where the log ends")
    return corrected, details


def left_of(errors: Sequence[CorruptRecord], repairs: Iterable[PartitionRepair]) -> list[CorruptRecord]:
    """Findings of the directory itself after its partitions and checkpoints were repaired."""
    repaired = {os.path.basename(done.folder) for done in repairs if done.actions and not done.left}
    return [error for error in errors if name_of(error) not in {*OFFSET_CHECKPOINTS, *repaired}]
