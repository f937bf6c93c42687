"""The local directories of a heal: locked from the comparison to the end, and their checkpoints and markers.

What must always be true:
- A directory with a changed copy does not count as closed cleanly until all of its copies are healed and its
  checkpoints are written.
- Checkpoints never say more than what is in the folders. Before the first change, those of all copies that are to be
  changed are lowered, durably: no copy counts as compacted from its first change on, none as served after it diverges,
  and none as starting where a log does that had its name before. After the last change, they say what was healed.
- Tasks of a job change only partitions that were lent to them. What they have done counts when they all have ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from duralog.errors import StorageError
from duralog.format.filenames import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.topic_partition import TopicPartition
from duralog.operations.chosen_partition import Choice
from duralog.operations.cluster.heal_tasks import Loan, Target
from duralog.operations.lock_holder import lock_holder_named
from duralog.scanning.cluster.heal_plan import CopyPlan, PartitionPlan, set_aside_name
from duralog.scanning.cluster.healing_files import CopyOutcome
from duralog.scanning.locations import Location
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.file_system import LocalFileSystem, Lock
from duralog.storage.disk.lent_lock import LentLock
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.recovery.leftovers import has_unfinished_files, settle_leftovers
from duralog.storage.repair.repair import lock_for_repair

_PATIENCE_SECONDS = 60.0
"""How long the end of a job waits for tasks that Spark has cancelled, but that are still running."""


class Change(NamedTuple):
    plan: PartitionPlan
    copy: CopyPlan


class LockedDirectory:
    """A local directory that is locked. `begin` before its copies change, `finish` afterwards."""

    def __init__(self, path: str) -> None:
        self._files = LocalFileSystem()
        self._directory = LogDirectory(self._files, path)
        self._lock: Lock | None = None
        self._lent: LentLock | None = None
        self._loans: dict[TopicPartition, Loan] = {}
        self._was_clean = False
        self._is_in_doubt = False
        self._cleaner: CleanerCheckpoint | None = None
        self._offsets: dict[str, dict[TopicPartition, int]] = {}

    def take(self, *, dry_run: bool) -> None:
        self._lock = lock_for_repair(self._directory, dry_run=dry_run)

    def settle_leftovers(self, choice: Choice) -> None:
        """Finish what a crash has left in the folders of partitions, as the next start would."""
        for partition in self._directory.folders().live:
            folder = self._directory.folder_of(partition)
            if choice.includes(partition) and has_unfinished_files(self._files.list_names(folder)):
                # The segments may lack indexes: the next start recovers them.
                self._is_in_doubt = True
                self._directory.take_clean_shutdown()
                settle_leftovers(self._files, folder)

    def begin(self, changes: Sequence[Change]) -> list[tuple[TopicPartition, CopyOutcome]]:
        """Let the checkpoints say nothing that does not hold while these copies are changed, and make room for folders.

        Returns those whose folder could not be set aside.
        """
        self._cleaner = CleanerCheckpoint(self._directory)
        for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
            self._offsets[name] = dict(self._directory.read_checkpoint(name))
        self._was_clean = self._directory.take_clean_shutdown()
        high_watermarks = self._offsets[HIGH_WATERMARK_CHECKPOINT]
        for plan, copy in changes:
            self._cleaner.lower(plan.partition, copy.first_changed)
            if copy.number is None:
                # There is no folder, or that of another topic: the entries are of a log that is not this one.
                for offsets in self._offsets.values():
                    offsets.pop(plan.partition, None)
            elif copy.diverges_at is not None and plan.partition in high_watermarks:
                # Once the copy is truncated, nothing shows that it had served other batches than the log.
                high_watermarks[plan.partition] = min(high_watermarks[plan.partition], copy.diverges_at)
        self._write()
        return self._make_room([change for change in changes if change.copy.number is None])

    def _make_room(self, changes: Sequence[Change]) -> list[tuple[TopicPartition, CopyOutcome]]:
        failed: list[tuple[TopicPartition, CopyOutcome]] = []
        for plan, copy in changes:
            try:
                if copy.other_topic is not None:
                    aside = self._directory.path_of(set_aside_name(plan.partition, copy.other_topic))
                    self._files.rename(self._directory.folder_of(plan.partition), aside)
            except StorageError as error:
                failed.append((plan.partition, CopyOutcome(copy, str(error))))
                continue
            self._offsets[LOG_START_OFFSET_CHECKPOINT][plan.partition] = copy.start_offset
        if changes:
            self._files.sync_folder(self._directory.path)
            # Not before: the log of another topic may end below, and would be emptied by a start in between.
            self._write()
        return failed

    def lend(self, job: str, partitions: Sequence[TopicPartition]) -> None:
        """Let tasks of this job change these partitions, until `finish`."""
        assert isinstance(self._lock, LocalLock)
        self._lent = LentLock(self._lock, job, len(partitions))
        self._loans = {partition: Loan(self._lock.path, job, slot) for slot, partition in enumerate(partitions)}

    def target(self, partition: TopicPartition) -> Target:
        """REQUIRES: `begin` was called."""
        return Target(
            path=self._directory.path,
            log_start_offset=self._offsets[LOG_START_OFFSET_CHECKPOINT].get(partition, 0),
            loan=self._loans.get(partition),
        )

    def note(self, plan: PartitionPlan, outcome: CopyOutcome) -> None:
        self._is_in_doubt |= outcome.is_in_doubt
        if outcome.failure is not None:
            return
        copy = outcome.copy
        self._offsets[RECOVERY_POINT_CHECKPOINT][plan.partition] = copy.end_offset
        self._offsets[HIGH_WATERMARK_CHECKPOINT][plan.partition] = min(plan.high_watermark, copy.end_offset)
        if copy.cleaned_to is not None:
            assert self._cleaner is not None
            self._cleaner.put(plan.partition, min(copy.cleaned_to, copy.end_offset))

    def _write(self) -> None:
        for name, offsets in self._offsets.items():
            self._directory.write_checkpoint(name, offsets.copy)
        if self._cleaner is not None:
            self._cleaner.write()

    def take_back(self) -> None:
        """Wait for the last task. Raises `StorageError` if one is still running after a while."""
        if self._lent is not None:
            self._lent.take_back(_PATIENCE_SECONDS)

    def finish(self) -> None:
        self._write()
        if self._was_clean and not self._is_in_doubt:
            self._directory.put_clean_shutdown()

    def release(self) -> None:
        if self._lent is not None:
            self._lent.release()
        elif self._lock is not None:
            self._lock.release()


@contextmanager
def locked_directories(locations: Sequence[Location], *, dry_run: bool) -> Iterator[dict[str, LockedDirectory]]:
    """The local directories that may be changed, locked."""
    locked: list[LockedDirectory] = []
    held: dict[str, LockedDirectory] = {}
    try:
        for location in locations:
            path = location.url
            is_usable = not location.is_remote and os.path.isdir(path)
            if is_usable and (dry_run or os.access(path, os.W_OK)):
                directory = LockedDirectory(path)
                with lock_holder_named(path):
                    directory.take(dry_run=dry_run)
                locked.append(directory)
                if os.access(path, os.W_OK):
                    held[path] = directory
        yield held
    finally:
        for directory in locked:
            directory.release()
