"""Repairs one partition: rebuilds indexes, quarantines damage, restores valid batches.

Damaged segments are recovered as after a crash (`duralog.storage.recovery.recovery`), with one difference: a crash
damages the end of a log, so recovery ends a log at the first damage; here every valid batch of the later segments
stays. At the end, records that no coordinator can load are removed from their batches
(`duralog.storage.repair.record_repair`).

What must always be true: bytes that leave a log go to its quarantine. Until everything is done, the directory must not
count as closed cleanly, so that the next start after a crash recovers it.

REQUIRES: no other process or thread has the partition open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, DuralogError, Fault, StorageError
from duralog.format.filenames import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    FileKind,
    FileState,
    PartitionFolder,
    SegmentFile,
    parse_segment_file,
)
from duralog.format.internal.internal_topics import CLUSTER_METADATA, INTERNAL_TOPICS
from duralog.format.topic_partition import TopicPartition
from duralog.storage.checks.chain import CheckOptions
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles, FilesOf
from duralog.storage.checks.partition import PartitionCheck, PartitionReport
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.disk.log_directory import LogDirectory
from duralog.storage.recovery.leftovers import INDEX_KINDS
from duralog.storage.recovery.quarantine import Quarantine
from duralog.storage.repair.folder_changes import Action, changes, survey
from duralog.storage.repair.record_repair import take_out_unloadable
from duralog.storage.repair.restore import Restored, restore
from duralog.storage.repair.settled_log import settle_log

_REBUILT_KINDS = (FileKind.LOG, *INDEX_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRepair:
    """The findings of a partition and the changes, done or planned."""

    partition: TopicPartition
    folder: str
    errors: Sequence[CorruptRecord]
    actions: Sequence[Action]
    end_offset: int
    restorable_batches: int
    """Valid batches in quarantine that `restore` would put back into the log."""
    left: Sequence[CorruptRecord]
    """What is still wrong; after a dry run, what would be."""
    failure: str | None = None
    """Why it could not be repaired."""

    @property
    def is_sound(self) -> bool:
        return not self.errors and not self.actions and self.failure is None

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "folder": self.folder,
            "end_offset": self.end_offset,
            "findings": [str(error) for error in self.errors],
            "actions": [action.to_dict() for action in self.actions],
            "restorable_batches": self.restorable_batches,
            "left": [str(error) for error in self.left],
            "failure": self.failure,
        }


class PartitionRepairer:
    """Repairs partitions of one directory, one after the other."""

    def __init__(
        self,
        fs: FileSystem,
        directory: LogDirectory,
        *,
        config_of: Callable[[str], TopicConfig],
        restore: bool = False,
        dry_run: bool = False,
        may_cut_metadata: bool = False,
        clock: Clock = wall_clock_ms,
    ) -> None:
        """`directory` is on `fs`, which for a dry run is a `RehearsalFileSystem`."""
        self.actions: list[Action] = []
        """On the cleaner's checkpoint."""
        self.is_in_doubt = False
        """The repair of a partition failed half-way."""
        self._fs = fs
        self._directory = directory
        self._config_of = config_of
        self._restore = restore
        self._dry_run = dry_run
        self._may_cut_metadata = may_cut_metadata
        self._clock = clock
        self._log_starts = dict(directory.read_checkpoint(LOG_START_OFFSET_CHECKPOINT))
        self._cleaner_checkpoint = CleanerCheckpoint(directory)

    def repair(self, report: PartitionReport, partition: TopicPartition) -> PartitionRepair:
        """Repair what the verification of the partition found."""
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
                # Records after a gap in the metadata prevent all of it from being read.
                leaves_no_gap=partition.topic == CLUSTER_METADATA,
                dry_run=not self._restore,
            )
            if self._restore and any(entry.restored_offsets for entry in restored):
                end_offset = self._load(partition, folder, end_offset)
                actions += _put_back(folder, restored)
            else:
                restorable = sum(len(entry.restored_offsets) for entry in restored)
            if is_touched and partition.topic in INTERNAL_TOPICS and self._take_out_records(partition, folder):
                end_offset = self._load(partition, folder, end_offset)
            actions += self._quarantined(folder, entries)
            actions += changes(folder, before, survey(fs, folder))
        except DuralogError as error:
            failure = str(error)
            self.is_in_doubt |= is_touched
        left: Sequence[CorruptRecord] = () if actions else report.errors
        if actions:
            files = FilesOf(fs) if self._dry_run else LOCAL_FILES
            left = check_partition(report.folder, report.partition, source=files).errors
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

    def reindex(self, report: PartitionReport, partition: TopicPartition) -> PartitionRepair:
        """Build all indexes of the partition from its logs again, those that are missing too. No log is touched.

        If a log is damaged, nothing is done: `repair` is for that. If the machine dies in the middle, indexes are
        missing, and the next start builds them.
        """
        fs, folder = self._fs, report.folder
        actions: list[Action] = []
        failure: str | None = None
        end_offset = report.end_offset
        damaged = [error for error in report.errors if _is_of_log(error)]
        if damaged:
            failure = f"the log is damaged, so that no index of it would be complete: {damaged[0]}"
        else:
            try:
                before = survey(fs, folder)
                self.is_in_doubt, was_in_doubt = True, self.is_in_doubt
                for file in filter(None, map(parse_segment_file, before)):
                    if file.kind in INDEX_KINDS and file.state is FileState.LIVE:
                        fs.remove(os.path.join(folder, file.name))
                end_offset = self._load(partition, folder, end_offset)
                actions += changes(folder, before, survey(fs, folder))
                self.is_in_doubt = was_in_doubt
            except DuralogError as error:
                failure = str(error)
        return PartitionRepair(
            partition=partition,
            folder=folder,
            errors=report.errors,
            actions=actions,
            end_offset=end_offset,
            restorable_batches=0,
            left=damaged,
            failure=failure,
        )

    def _check_metadata_stays(self, report: PartitionReport, partition: TopicPartition) -> None:
        """Topics whose records were removed would be unknown, and Kafka would rename their folders to -stray."""
        if partition.topic != CLUSTER_METADATA or self._may_cut_metadata:
            return
        if any(map(_is_of_log, report.errors)):
            raise StorageError(
                f"what follows the damage would be removed from the metadata, topics and their configs with it;"
                f" to do that all the same, choose --topic {CLUSTER_METADATA}"
            )
        if any(error.fault is Fault.UNLOADABLE for error in report.errors):
            raise StorageError(
                "the records that cannot be loaded would be removed from the metadata, perhaps a topic or a config with"
                f" them; to do that, choose --topic {CLUSTER_METADATA}"
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
        wrong = [file for error in report.errors if (file := parse_segment_file(name_of(error))) is not None]
        suspects = {file.offset for file in wrong if file.kind in _REBUILT_KINDS}
        parsed = [file for name in files if (file := _live(name)) is not None]
        with_times = {file.offset for file in parsed if file.kind is FileKind.TIME_INDEX}
        suspects |= {file.offset for file in parsed if file.kind is FileKind.LOG and file.offset not in with_times}
        for offset in sorted(suspects):
            self._fs.remove(os.path.join(report.folder, SegmentFile(offset, FileKind.OFFSET_INDEX).name))
        for file in wrong:
            if file.kind is FileKind.PRODUCER_SNAPSHOT:
                self._fs.remove(os.path.join(report.folder, file.name))

    def _load(self, partition: TopicPartition, folder: str, end_offset: int) -> int:
        """Load and close the log, which rebuilds everything else. Returns its end offset."""
        log_start = self._log_starts.get(partition, 0)
        return settle_log(
            self._fs,
            folder,
            partition,
            config=self._config_of(partition.topic),
            # A start after the end of the log would empty it.
            log_start_offset=log_start if 0 <= log_start <= end_offset else 0,
            clock=self._clock,
            before_change=lambda base_offset: self._count_as_new(partition, base_offset),
        )

    def _take_out_records(self, partition: TopicPartition, folder: str) -> bool:
        """Replace batches with records that cannot be loaded. Returns whether there were any."""
        return take_out_unloadable(
            self._fs,
            folder,
            partition.topic,
            clock=self._clock,
            before_change=lambda base_offset: self._count_as_new(partition, base_offset),
        )

    def _count_as_new(self, partition: TopicPartition, offset: int) -> None:
        """Let the log count as new from this offset on."""
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
                    f"{plural(entry.end - entry.start, 'byte')} from position {entry.start} on: {entry.reason}",
                    entry.end - entry.start,
                )


def check_partition(
    folder: str,
    partition: PartitionFolder | None,
    options: CheckOptions | None = None,
    *,
    source: CheckedFiles = LOCAL_FILES,
) -> PartitionReport:
    """Check a partition's folder in this thread."""
    check = PartitionCheck(folder, partition, source)
    return check.finish([chain.check(options or CheckOptions(), lambda _: None, source) for chain in check.chains])


def _put_back(folder: str, restored: Sequence[Restored]) -> Iterator[Action]:
    for entry in restored:
        if entry.restored_offsets:
            first, last = entry.restored_offsets[0][0], entry.restored_offsets[-1][1]
            yield Action(
                "restored",
                os.path.join(folder, entry.report.file),
                f"{plural(len(entry.restored_offsets), 'batch')} from quarantine, offsets {first} to {last}",
            )


def _live(name: str) -> SegmentFile | None:
    """The segment's file of that name, if it is neither left over nor unfinished."""
    file = parse_segment_file(name)
    return None if file is None or file.state is not FileState.LIVE else file


def name_of(error: CorruptRecord) -> str:
    """Of the file that it was found in."""
    return os.path.basename(error.file or "")


def _is_of_log(error: CorruptRecord) -> bool:
    """Whether the log itself is damaged. One with a record that no coordinator can load is sound."""
    file = parse_segment_file(name_of(error))
    return file is not None and file.kind is FileKind.LOG and error.fault is not Fault.UNLOADABLE
