"""One partition of a directory that a job has locked, open for writing in one of its tasks.

A store opens all partitions in one process. A job holds the directory instead (`duralog.spark.jobs.holding`) and hands
a `Loan` to each task, which opens only its partition: recovered if it was not closed cleanly, with the cleaner's
checkpoint corrected as in a store, and closed cleanly at the end, even if the task fails.

What must always be true:
- A task writes to its partition's folder, and in the checkpoint files to its partition's lines. One task at a time
  changes those, and they are on disk when the partition is returned. So nothing depends on the end of the job's driver.
- The next task knows whether the partition was returned cleanly (`duralog.storage.disk.lent_lock`). After a task that
  died it is recovered, as after a crash, even if the directory was clean when the job began.

The files of deleted segments are removed at once: there is no store that would remove them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from duralog.config import BrokerConfig, TopicConfig
from duralog.errors import CorruptRecord
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import LOCK
from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.cleaned_partitions import CleanerOwner
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.compaction.cleaning import CompactLog
from duralog.storage.compaction.compact import compact_log
from duralog.storage.disk.background import Clock, Scheduler, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem, raise_open_file_limit
from duralog.storage.disk.lent_lock import BorrowedLock, SlotState, borrowed
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.topics import Topic
from duralog.storage.partition_loading import PartitionLoader
from duralog.storage.upkeep import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What a task needs to open its partition. Can be pickled."""

    path: str
    """The directory, the same on all hosts."""
    job: str
    slot: int
    partition: TopicPartition
    topic_id: str | None
    leader_epoch: int
    topic_config: TopicConfig
    broker_config: BrokerConfig
    was_clean: bool
    """The directory was closed cleanly when the job began."""

    @property
    def lock_path(self) -> str:
        return f"{self.path}/{LOCK}"


class BorrowedDirectory(LogDirectory):
    """The directory as a task sees it: in the checkpoints, only the lines of its partition change."""

    def __init__(self, file_system: FileSystem, path: str, partition: TopicPartition, lock: BorrowedLock) -> None:
        super().__init__(file_system, path)
        self._partition = partition
        self._borrowed_lock = lock

    def check_lock(self) -> None:
        self._borrowed_lock.check()

    def read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """Decoded once for the same contents: with very many partitions, decoding takes most of the time."""
        path = self.path_of(name)
        try:
            return _decoded(self._files.read_all(path)) if self._files.exists(path) else {}
        except CorruptRecord:
            return super().read_checkpoint(name)

    def write_checkpoint(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        with self._borrowed_lock.changing_checkpoints():
            offset = collect().get(self._partition)
            found = self.read_checkpoint(name)
            if found.get(self._partition) == offset:
                return
            self.check_lock()
            changed = {partition: found[partition] for partition in found if partition != self._partition}
            if offset is not None:
                changed[self._partition] = offset
            self._replace_checkpoint(name, changed)


@lru_cache(maxsize=8)
def _decoded(data: bytes) -> Mapping[TopicPartition, int]:
    entries = decode_offset_checkpoint(data)
    return MappingProxyType({TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries})


class BorrowedFolder:
    """A partition's folder that no other task has. Nothing is loaded."""

    def __init__(self, loan: Loan, lock: BorrowedLock) -> None:
        self.loan = loan
        self.partition = loan.partition
        self.file_system = LocalFileSystem()
        self.directory = BorrowedDirectory(self.file_system, loan.path, loan.partition, lock)
        self.path = self.directory.folder_of(loan.partition)
        state = lock.state
        self.was_in_order = state is SlotState.RETURNED or (state is SlotState.AS_FOUND and loan.was_clean)
        """It was closed cleanly, so that nothing has to be recovered."""
        self.is_in_order = False
        """Set this when everything is on disk. Otherwise the next task recovers the partition."""


class BorrowedPartition:
    """A partition that was loaded."""

    def __init__(self, folder: BorrowedFolder, clock: Clock, compact_log: CompactLog) -> None:
        loan = folder.loan
        self.partition = loan.partition
        self.config = replace(loan.broker_config, log_cleaner_enable=False)
        # Its clock stands still: tasks without a delay run when `run_due` is called.
        self._scheduler = Scheduler(lambda: 0, threads=0)
        directories = LogDirectories([folder.directory])
        loader = PartitionLoader(
            LogEnvironment(file_system=folder.file_system, clock=clock, run_later=self._scheduler.after),
            directories,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            is_clean=lambda _: folder.was_in_order,
            read_only=False,
        )
        self.log: PartitionLog = loader.load(loan.partition, _topic(loan))
        logs = {loan.partition: self.log}
        self._upkeep = Upkeep(directories, self.config, self._scheduler, logs=lambda: logs, clock=clock)
        cleaner_owner = CleanerOwner(
            directory=directories,
            logs=lambda: logs,
            clock=clock,
            scheduler=self._scheduler,
            report_error=self._scheduler.report,
            write_checkpoints=self.checkpoint,
        )
        self.cleaner = Cleaner(cleaner_owner, self.config, compact_log=compact_log)
        self.checkpoint()
        self.cleaner.start()

    def checkpoint(self) -> None:
        """Write this partition's lines of the checkpoints."""
        self._upkeep.checkpoint()

    def run_due(self) -> None:
        """Run the tasks that are due, such as removing the files of deleted segments."""
        self._scheduler.run_due()

    def close(self) -> None:
        """In a forked child, only close the descriptors."""
        if self.log.is_inherited:
            self.log.close()
            return
        self.cleaner.stop()
        try:
            self.log.close()
        finally:
            self.checkpoint()


@contextmanager
def borrow_folder(loan: Loan) -> Iterator[BorrowedFolder]:
    """Borrow a partition's folder to work on its files. Waits for another task that has it."""
    with borrowed(loan.lock_path, loan.job, loan.slot) as lock:
        folder = BorrowedFolder(loan, lock)
        lock.put_state(SlotState.BORROWED)
        try:
            yield folder
        finally:
            if folder.is_in_order:
                lock.put_state(SlotState.RETURNED)


@contextmanager
def borrow(
    loan: Loan, *, clock: Clock = wall_clock_ms, compact_log: CompactLog = compact_log
) -> Iterator[BorrowedPartition]:
    """Borrow a partition, open for writing and recovered if necessary. Waits for another task that has it.

    It is closed cleanly at the end, even after an exception. Its cleaner compacts with `compact_log`.
    """
    raise_open_file_limit()
    with borrow_folder(loan) as folder:
        borrowed_partition = BorrowedPartition(folder, clock, compact_log)
        try:
            yield borrowed_partition
        finally:
            borrowed_partition.run_due()
            borrowed_partition.close()
            folder.is_in_order = not borrowed_partition.log.in_doubt


def _topic(loan: Loan) -> Topic:
    topic, number = loan.partition
    return Topic(
        name=topic,
        topic_id=loan.topic_id,
        partitions=(number,),
        overrides={},
        config=loan.topic_config.with_overrides({"file.delete.delay.ms": 0}),
        leader_epochs={number: loan.leader_epoch},
    )
