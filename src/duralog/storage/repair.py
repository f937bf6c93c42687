"""Bringing a log directory in order: side files are built again, damage goes to quarantine, what is valid comes back.

Every partition is verified first; one that is sound is not touched. In another, the segments that something is wrong
with are recovered as after a crash (`duralog.storage.recovery`), with one difference: a crash damages the end of a log,
so recovery lets a log end at the first damage; here every valid batch of the segments behind it stays.

What must always be true: bytes leave a log only for its quarantine. The directory is locked. Until all is done it does
not count as closed in order, so a crash in the middle, or a repair that fails half-way, means that the next start
recovers it. One that is refused, and has changed nothing, does not: recovery would cut off what was not to be touched.

A dry run does the same on a `RehearsalFileSystem`: what it tells is what would happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, DuralogError, StorageError
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    FileKind,
    FileState,
    FolderState,
    SegmentFile,
    parse_segment_file,
)
from duralog.storage.background import wall_clock_ms
from duralog.storage.chain_check import Options
from duralog.storage.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.file_system import FileSystem, LocalFileSystem, Lock
from duralog.storage.folder_changes import Action, changes, survey
from duralog.storage.log_directory import LogDirectory, TopicPartition
from duralog.storage.metadata_log import METADATA_TOPIC
from duralog.storage.partition_check import PartitionCheck, PartitionReport
from duralog.storage.partition_log import PartitionLog
from duralog.storage.quarantine import Quarantine
from duralog.storage.recovery import load_partition
from duralog.storage.rehearsal import RehearsalFileSystem
from duralog.storage.restore import Restored, restore
from duralog.storage.store import Store
from duralog.storage.verification import Show, Verification

Clock = Callable[[], int]

_ALL_FLUSHED = 2**63 - 1
"""A recovery point above every segment: nothing but the last one can have been hurt by a crash."""
_REBUILT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRepair:
    """What was wrong with a partition, and what was done about it or would be."""

    partition: TopicPartition
    folder: str
    errors: Sequence[CorruptRecord]
    actions: Sequence[Action]
    end_offset: int
    restorable_batches: int
    """Valid batches that are in quarantine and would go back into the log with `restore`."""
    left: Sequence[CorruptRecord]
    """What is still wrong; after a dry run, what nothing would be done about."""
    failure: str | None = None
    """Why it could not be repaired."""

    @property
    def is_sound(self) -> bool:
        return not self.errors and not self.actions and self.failure is None


class Repair:
    """One repair of a directory, or of some of its partitions."""

    def __init__(
        self,
        path: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        restore: bool = False,
        dry_run: bool = False,
        clock: Clock = wall_clock_ms,
    ) -> None:
        """REQUIRES: `path` is a log directory. Raises `StoreLocked` if somebody has it open for writing."""
        self.dry_run = dry_run
        self.actions: list[Action] = []
        """On the files of the directory itself."""
        self.left: list[CorruptRecord] = []
        """What is wrong with the directory and cannot be repaired here."""
        self._restore = restore
        self._may_cut_metadata = topic == METADATA_TOPIC
        self._is_in_doubt = False
        """The repair of a partition failed half-way."""
        self._clock = clock
        self._fs: FileSystem = RehearsalFileSystem(LocalFileSystem()) if dry_run else LocalFileSystem()
        self._directory = LogDirectory(self._fs, path)
        self._lock = self._take_lock(path)
        try:
            self._verification = Verification(path, topics=None if topic is None else [topic], partition=partition)
            self._configs = _Configs(path)
            self._log_starts = dict(self._directory.read_checkpoint(LOG_START_OFFSET_CHECKPOINT))
            self._cleaner_checkpoint = CleanerCheckpoint(self._directory)
            self._was_clean = self._directory.take_clean_shutdown()
        except BaseException:
            self._release()
            raise

    @property
    def size_bytes(self) -> int:
        """Of the logs to look at."""
        return self._verification.size_bytes

    def run(self, show: Show | None = None) -> Iterator[PartitionRepair]:
        """Repair partition after partition."""
        end_offsets: dict[TopicPartition, int] = {}
        repaired_folders: set[str] = set()
        try:
            for report in self._verification.run(show):
                if report.partition is None or report.partition.state is not FolderState.LIVE:
                    continue
                repaired = self._repair(report, TopicPartition(report.partition.topic, report.partition.partition))
                if repaired.failure is None:
                    end_offsets[repaired.partition] = repaired.end_offset
                if repaired.actions and not repaired.left:
                    repaired_folders.add(os.path.basename(repaired.folder))
                yield repaired
            self._repair_checkpoints(end_offsets)
            corrected = {*OFFSET_CHECKPOINTS, *repaired_folders}
            self.left += [error for error in self._verification.errors if _name(error) not in corrected]
            if self._was_clean and not self._is_in_doubt:
                self._directory.put_clean_shutdown()
        finally:
            self._release()

    def _repair(self, report: PartitionReport, partition: TopicPartition) -> PartitionRepair:
        fs, folder = self._fs, report.folder
        actions: list[Action] = []
        end_offset = report.end_offset
        restorable = 0
        failure: str | None = None
        is_touched = False
        try:
            self._check_metadata_stays(report, partition)
            before = survey(fs, folder)
            entries = {entry.name for entry in Quarantine(fs, folder, self._clock).reports()}
            is_needed = self._is_needed(report, before)
            is_touched = is_needed or self._restore
            if is_needed:
                self._distrust(report, before)
                end_offset = self._load(partition, folder, end_offset)
            restored = restore(
                fs,
                folder,
                clock=self._clock,
                log_start_offset=self._log_starts.get(partition, 0),
                before_change=lambda base_offset: self._count_as_new(partition, base_offset),
                dry_run=not self._restore,
            )
            if self._restore and any(entry.restored_offsets for entry in restored):
                end_offset = self._load(partition, folder, end_offset)
                actions += _put_back(folder, restored)
            else:
                restorable = sum(len(entry.restored_offsets) for entry in restored)
            actions += self._quarantined(folder, entries)
            actions += changes(folder, before, survey(fs, folder))
        except DuralogError as error:
            failure = str(error)
            self._is_in_doubt |= is_touched
        left: Sequence[CorruptRecord] = () if actions else report.errors
        if actions and not self.dry_run:
            left = _check_again(report)
        return PartitionRepair(
            partition=partition,
            folder=folder,
            errors=report.errors,
            actions=actions,
            end_offset=end_offset,
            restorable_batches=restorable,
            left=left,
            failure=failure,
        )

    def _check_metadata_stays(self, report: PartitionReport, partition: TopicPartition) -> None:
        """Topics whose records were taken out would not be known any more, and Kafka would set their folders aside."""
        is_damaged = any(
            (file := parse_segment_file(_name(error))) is not None and file.kind is FileKind.LOG
            for error in report.errors
        )
        if partition.topic == METADATA_TOPIC and is_damaged and not self._may_cut_metadata:
            raise StorageError(
                f"what follows the damage would be taken out of the metadata, topics and their configs with it;"
                f" to do that all the same, choose --topic {METADATA_TOPIC}"
            )

    def _is_needed(self, report: PartitionReport, files: Mapping[str, object]) -> bool:
        """Whether there is anything to do: damage, files left over, indexes that are missing."""
        if report.errors:
            return True
        parsed = [file for name in files if (file := parse_segment_file(name)) is not None]
        if any(file.state is not FileState.LIVE for file in parsed):
            return True
        logs = {file.offset for file in parsed if file.kind is FileKind.LOG}
        return any(
            {file.offset for file in parsed if file.kind is kind} != logs
            for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
        )

    def _distrust(self, report: PartitionReport, files: Mapping[str, object]) -> None:
        """Remove the side files that loading must not rely on. A segment without an offset index is recovered."""
        wrong = [file for error in report.errors if (file := parse_segment_file(_name(error))) is not None]
        suspects = {file.offset for file in wrong if file.kind in _REBUILT_KINDS}
        parsed = [file for name in files if (file := parse_segment_file(name)) is not None]
        with_times = {file.offset for file in parsed if file.kind is FileKind.TIME_INDEX}
        suspects |= {file.offset for file in parsed if file.kind is FileKind.LOG and file.offset not in with_times}
        for offset in sorted(suspects):
            self._fs.remove(os.path.join(report.folder, SegmentFile(offset, FileKind.OFFSET_INDEX).name))
        for file in wrong:
            if file.kind is FileKind.PRODUCER_SNAPSHOT:
                self._fs.remove(os.path.join(report.folder, file.name))

    def _load(self, partition: TopicPartition, folder: str, end_offset: int) -> int:
        """Load and close the log, which puts everything in order. Returns where it ends."""
        log_start = self._log_starts.get(partition, 0)
        loaded = load_partition(
            self._fs,
            folder,
            config=self._configs.of(partition.topic),
            clean=False,
            recovery_point=_ALL_FLUSHED,
            # One behind the log's end would empty the log.
            log_start_checkpoint=log_start if 0 <= log_start <= end_offset else 0,
            clock=self._clock,
            before_change=lambda base_offset: self._count_as_new(partition, base_offset),
        )
        log = PartitionLog(
            loaded,
            topic=partition.topic,
            partition=partition.partition,
            config=self._configs.of(partition.topic),
            file_system=self._fs,
            clock=self._clock,
        )
        log.close()
        return loaded.end_offset

    def _count_as_new(self, partition: TopicPartition, offset: int) -> None:
        """From this offset on, the log is not to count as compacted."""
        before = self._cleaner_checkpoint.get(partition)
        if self._cleaner_checkpoint.lower_on_disk(partition, offset):
            detail = f"{partition}: {before} becomes {offset}, where the log is repaired"
            self.actions.append(Action("corrected", self._directory.path_of(CLEANER_OFFSET_CHECKPOINT), detail))

    def _quarantined(self, folder: str, known: set[str]) -> Iterator[Action]:
        for entry in Quarantine(self._fs, folder, self._clock).reports():
            if entry.name not in known:
                yield Action(
                    "quarantined",
                    os.path.join(folder, entry.file),
                    f"{entry.end - entry.start:,} bytes from position {entry.start} on: {entry.reason}",
                    entry.end - entry.start,
                )

    def _repair_checkpoints(self, end_offsets: Mapping[TopicPartition, int]) -> None:
        """Take out or correct what lies outside of a log that was looked at."""
        for name in OFFSET_CHECKPOINTS:
            path = self._directory.path_of(name)
            if not self._fs.exists(path):
                continue
            try:
                decode_offset_checkpoint(self._fs.read_all(path))
            except CorruptRecord:
                self._directory.write_checkpoint(name, dict)
                self.actions.append(Action("emptied", path, "it could not be read"))
                continue
            offsets = self._directory.read_checkpoint(name)
            corrected = dict(offsets)
            for partition, offset in offsets.items():
                end = end_offsets.get(partition)
                if end is None or 0 <= offset <= end:
                    continue
                if name in (LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT) or offset < 0:
                    del corrected[partition]
                    detail = f"{partition}: {offset} taken out, the log ends at {end}"
                else:
                    corrected[partition] = end
                    detail = f"{partition}: {offset} becomes {end}, where the log ends"
                self.actions.append(Action("corrected", path, detail))
            self._directory.write_checkpoint(name, corrected.copy)

    def _take_lock(self, path: str) -> Lock | None:
        """For a dry run, too, if there is something to lock: what it tells must not change meanwhile."""
        if not os.path.isdir(path):
            raise DuralogError(f"{path}: there is no such directory")
        real = LogDirectory(LocalFileSystem(), path)
        if self.dry_run and not os.path.exists(real.path_of(LOCK)):
            return None
        return real.lock()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


class _Configs:
    """The configs of a directory's topics; Kafka's defaults where nothing is known."""

    def __init__(self, path: str) -> None:
        self._store = Store(path, read_only=True)

    def of(self, topic: str) -> TopicConfig:
        return self._store.topic_config(topic) if topic in self._store.topics() else TopicConfig()


def _check_again(report: PartitionReport) -> Sequence[CorruptRecord]:
    check = PartitionCheck(report.folder, report.partition)
    return check.finish([chain.check(Options(), lambda _: None) for chain in check.chains]).errors


def _put_back(folder: str, restored: Sequence[Restored]) -> Iterator[Action]:
    for entry in restored:
        if entry.restored_offsets:
            first, last = entry.restored_offsets[0][0], entry.restored_offsets[-1][1]
            yield Action(
                "restored",
                os.path.join(folder, entry.report.file),
                f"{len(entry.restored_offsets):,} batches from quarantine, offsets {first} to {last}",
            )


def _name(error: CorruptRecord) -> str:
    return os.path.basename(error.file or "")
