"""One partition folder: its files, the chains in which its segments are checked, and the report.

Nothing is changed. A folder that a broker writes to can be checked, too: the log may end in the middle of a batch that
is being written, and files may be removed meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from duralog.config.plurals import plural
from duralog.errors import CorruptRecord
from duralog.format.checkpoints import EpochStart
from duralog.format.filenames import (
    HALF_WRITTEN_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    FileState,
    PartitionFolder,
    has_partition_files,
)
from duralog.format.producer_snapshot import decode_producer_snapshot
from duralog.format.properties import decode_partition_metadata
from duralog.notebook.notebook_tables import partition_report_html
from duralog.storage.checks.chain import Chain, Checked, CheckedCounts, CheckedSnapshot
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles
from duralog.storage.checks.findings import Findings, Note, unreadable
from duralog.storage.disk.found_files import Content, FoundFile
from duralog.storage.log.leader_epochs import epochs_in
from duralog.storage.recovery.quarantine import QUARANTINE_FOLDER

_SNAPSHOT_ATTEMPTS = 5
_SNAPSHOT_PAUSE_SECONDS = 0.02
"""Snapshots are written in place: one that is just being written is incomplete for a moment."""

_SIDE_FILES = (Content.OFFSET_INDEX, Content.TIME_INDEX, Content.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    folder: str
    partition: PartitionFolder | None
    """From the folder's name."""
    topic_id: str | None
    counts: CheckedCounts
    base_offset: int
    """Of the first segment."""
    end_offset: int
    """After the last batch."""
    is_complete: bool
    """All logs could be read, so that the end is known."""
    errors: Sequence[CorruptRecord]
    """The first ones of each file."""
    error_count: int
    notes: Sequence[Note]

    @property
    def name(self) -> str:
        return os.path.basename(os.path.normpath(self.folder))

    def _repr_html_(self) -> str:
        return partition_report_html(self)

    def to_dict(self) -> dict[str, object]:
        """The totals. Findings and notes are objects of their own."""
        return {
            "kind": "partition",
            "folder": self.folder,
            "topic": None if self.partition is None else self.partition.topic,
            "partition": None if self.partition is None else self.partition.partition,
            "topic_id": self.topic_id,
            **self.counts.to_dict(),
            "first_offset": self.base_offset,
            "end_offset": self.end_offset,
            "findings": self.error_count,
            "notes": len(self.notes),
        }


class PartitionCheck:
    """Lists the folder at once; `chains` are to be checked, in any order, and then `finish`ed in theirs."""

    def __init__(self, folder: str, partition: PartitionFolder | None, source: CheckedFiles = LOCAL_FILES) -> None:
        self.folder = folder
        self.partition = partition
        self.findings = Findings()
        self._source = source
        files, folders = source.look_into(folder)
        self.is_partition = has_partition_files(file.name for file in files)
        """It has files of a log: its name alone does not make a folder a partition."""
        self._logs = [
            file
            for file in files
            if file.content is Content.LOG and file.offset is not None and file.state is FileState.LIVE
        ]
        self._snapshots = [snapshot for file in files if (snapshot := self._read_snapshot(file)) is not None]
        self._epochs = self._read_epochs()
        self.topic_id = self._read_topic_id(files)
        self._note_leftovers(files, folders)
        self.chains = self._make_chains()

    @property
    def has_logs(self) -> bool:
        return bool(self._logs)

    @property
    def size_bytes(self) -> int:
        return sum(self._source.size_of(log.path) for log in self._logs)

    def finish(self, checked: Sequence[Checked]) -> PartitionReport:
        """Put the results of the chains together. REQUIRES: they are in the order of `chains`."""
        counts = CheckedCounts()
        end_offset = self._logs[-1].offset if self._logs else 0
        assert end_offset is not None
        for result in checked:
            counts.add(result.counts)
            end_offset = max(end_offset, result.end_offset)
        is_complete = bool(self._logs) and all(result.is_complete for result in checked)
        if is_complete:
            self._check_ends(end_offset)
        collected = [self.findings, *(result.findings for result in checked)]
        return PartitionReport(
            folder=self.folder,
            partition=self.partition,
            topic_id=self.topic_id,
            counts=counts,
            base_offset=(self._logs[0].offset or 0) if self._logs else 0,
            end_offset=end_offset,
            is_complete=is_complete,
            errors=[error for findings in collected for error in findings.errors],
            error_count=sum(findings.count for findings in collected),
            notes=[note for findings in collected for note in findings.notes],
        )

    def _check_ends(self, end_offset: int) -> None:
        for entry in self._epochs:
            if entry.start_offset > end_offset:
                self.findings.report(
                    CorruptRecord(
                        f"leader epoch {entry.epoch} starts after the end of the log",
                        file=os.path.join(self.folder, LEADER_EPOCH_CHECKPOINT),
                        expected=f"at most offset {end_offset}",
                        found=entry.start_offset,
                    )
                )
        for snapshot in self._snapshots:
            if snapshot.offset > end_offset:
                self.findings.report(
                    CorruptRecord(
                        "the producer snapshot was taken after the end of the log",
                        file=snapshot.path,
                        expected=f"at most offset {end_offset}",
                        found=snapshot.offset,
                    )
                )

    def _make_chains(self) -> list[Chain]:
        by_offset = {snapshot.offset: snapshot for snapshot in self._snapshots}
        starts = [at for at, log in enumerate(self._logs) if at == 0 or log.offset in by_offset]
        chains = []
        for start, end in pairwise([*starts, len(self._logs)]):
            first = self._logs[start].offset
            next_base = self._logs[end].offset if end < len(self._logs) else None
            chains.append(
                Chain(
                    logs=self._logs[start:end],
                    next_base=next_base,
                    start=by_offset.get(first) if first is not None else None,
                    ends=[
                        snapshot
                        for snapshot in self._snapshots
                        if snapshot.offset > (first or 0) and (next_base is None or snapshot.offset <= next_base)
                    ],
                    epochs=self._epochs,
                    topic=None if self.partition is None else self.partition.topic,
                )
            )
        return chains

    def _read_snapshot(self, file: FoundFile) -> CheckedSnapshot | None:
        if file.content is not Content.PRODUCER_SNAPSHOT or file.offset is None or file.state is not FileState.LIVE:
            return None
        for is_last in (*[False] * _SNAPSHOT_ATTEMPTS, True):
            try:
                data = self._source.read_small(file.path)
                if data is None:
                    return None
                return CheckedSnapshot(
                    path=file.path, offset=file.offset, data=data, entries=decode_producer_snapshot(data)
                )
            except CorruptRecord as error:
                if is_last:
                    self.findings.report(error.in_file(file.path))
                else:
                    time.sleep(_SNAPSHOT_PAUSE_SECONDS)
        return None

    def _read_epochs(self) -> Sequence[EpochStart]:
        path = os.path.join(self.folder, LEADER_EPOCH_CHECKPOINT)
        try:
            data = self._source.read_small(path)
            return () if data is None else epochs_in(data, path)
        except CorruptRecord as error:
            self.findings.report(error)
        except OSError as error:
            self.findings.report(unreadable(path, error))
        return ()

    def _read_topic_id(self, files: Sequence[FoundFile]) -> str | None:
        for file in files:
            if file.content is Content.PARTITION_METADATA:
                try:
                    data = self._source.read_small(file.path)
                    return None if data is None else decode_partition_metadata(data)
                except CorruptRecord as error:
                    self.findings.report(error.in_file(file.path))
        return None

    def _note_leftovers(self, files: Sequence[FoundFile], folders: Sequence[str]) -> None:
        offsets = {log.offset for log in self._logs}
        note = self.findings.note
        if not self._logs:
            note(self.folder, "holds no segment")
        for file in files:
            if file.state is not FileState.LIVE:
                note(file.path, f"left over from a deletion or a compaction ({file.state.value.lstrip('.')})")
            elif file.content in _SIDE_FILES and file.offset not in offsets:
                note(file.path, "an index without its log; Kafka removes it when it starts")
            elif file.name.endswith(HALF_WRITTEN_SUFFIX):
                note(file.path, "an incomplete file that was never renamed into place; Kafka overwrites it")
            elif file.content is Content.OTHER:
                note(file.path, "its name is not that of a log file")
        for folder in folders:
            if os.path.basename(folder) == QUARANTINE_FOLDER:
                entries = sum(file.name.endswith(".json") for file in self._source.look_into(folder)[0])
                note(folder, f"{plural(entries, 'range')} of bytes removed from the log; see duralog repair --restore")
            else:
                note(folder, "a folder that belongs to no log")
