"""One partition of a directory that a job has locked, open for writing in one of its tasks.

A store opens all partitions in one process. A job holds the directory instead (`duralog.spark.jobs.holding`) and hands
a `Loan` to each task, which opens just its partition here: recovered if it was not closed in order, with the cleaner's
checkpoint corrected as a store does it, closed in order at the end, also when the task fails.

What must always be true:
- A task writes to its partition's folder, and in the checkpoint files to its partition's lines. Those are changed while
  no other task changes them, and are on disk when the partition is given back. So nothing depends on the job's driver
  coming to its end.
- Who has the partition next knows whether it was given back in order (`duralog.storage.disk.lent_lock`). After a task
  that died it is recovered, as after a crash, whatever the directory was when the job began.

Deleted segments' files go at once: there is no store that would remove them later.
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
from duralog.storage.compaction.cleaner import Cleaner
from duralog.storage.compaction.cleaner_manager import CleanerOwner
from duralog.storage.compaction.cleaning import CompactLog
from duralog.storage.compaction.compact import compact_log
from duralog.storage.disk.background import Clock, Scheduler, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem, raise_open_file_limit
from duralog.storage.disk.lent_lock import BorrowedLock, SlotState, borrowed
from duralog.storage.disk.log_directory import LogDirectory, TopicPartition
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.topics import Topic
from duralog.storage.partition_loading import PartitionLoader
from duralog.storage.upkeep import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What a task has to know to open its partition. Can be pickled."""

    path: str
    """Of the directory, the same on all hosts."""
    job: str
    slot: int
    partition: TopicPartition
    topic_id: str | None
    leader_epoch: int
    topic_config: TopicConfig
    broker_config: BrokerConfig
    was_clean: bool
    """The directory was closed in order when the job began."""

    @property
    def lock_path(self) -> str:
        return f"{self.path}/{LOCK}"


class BorrowedDirectory(LogDirectory):
    """The directory as a task sees it: of the checkpoints, only the lines of its partition change."""

    def __init__(self, file_system: FileSystem, path: str, partition: TopicPartition, lock: BorrowedLock) -> None:
        super().__init__(file_system, path)
        self._partition = partition
        self._borrowed_lock = lock

    def check_lock(self) -> None:
        self._borrowed_lock.check()

    def read_checkpoint(self, name: str) -> Mapping[TopicPartition, int]:
        """Of a directory with very many partitions, decoding costs more than all else: once for the same contents."""
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
    """A partition's folder with nobody else at it. Nothing is loaded."""

    def __init__(self, loan: Loan, lock: BorrowedLock) -> None:
        self.loan = loan
        self.partition = loan.partition
        self.file_system = LocalFileSystem()
        self.directory = BorrowedDirectory(self.file_system, loan.path, loan.partition, lock)
        self.path = self.directory.folder_of(loan.partition)
        state = lock.state
        self.was_in_order = state is SlotState.RETURNED or (state is SlotState.AS_FOUND and loan.was_clean)
        """It was closed in order, so that nothing has to be checked."""
        self.is_in_order = False
        """To be set when all is on disk, as after closing in order. Otherwise the next one to open it recovers it."""


class BorrowedPartition:
    """A partition that was loaded."""

    def __init__(self, folder: BorrowedFolder, clock: Clock, compact_log: CompactLog) -> None:
        loan = folder.loan
        self.partition = loan.partition
        self.config = replace(loan.broker_config, log_cleaner_enable=False)
        # Its clock stands still: what is to happen at once happens when told so.
        self._scheduler = Scheduler(lambda: 0, threads=0)
        loader = PartitionLoader(
            folder.file_system,
            folder.directory,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            clean=folder.was_in_order,
            read_only=False,
            clock=clock,
            run_later=self._scheduler.after,
        )
        self.log: PartitionLog = loader.load(loan.partition, _topic(loan))
        logs = {loan.partition: self.log}
        self._upkeep = Upkeep(folder.directory, self.config, self._scheduler, logs=lambda: logs, clock=clock)
        cleaner_owner = CleanerOwner(
            directory=folder.directory,
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
        """Bring what the checkpoints say of this partition to disk."""
        self._upkeep.checkpoint()

    def run_due(self) -> None:
        """Remove the files of deleted segments, and whatever else is to be done at once."""
        self._scheduler.run_due()

    def close(self) -> None:
        """In a forked child, only let go of the files."""
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
    """Have a partition's folder for oneself, to work on its files. Waits for another task that has it."""
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
    """Have a partition open for writing, recovered if need be. Waits for another task that has it.

    It is closed in order at the end, also after an exception. `compact_log` is what its cleaner compacts with.
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
