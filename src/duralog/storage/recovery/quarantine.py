"""The quarantine of a partition: bytes that recovery took out of its log, with a report for each.

It is the folder `duralog-quarantine` inside the partition's folder: Kafka reads only the files of a partition's folder,
moves the folder with them, and deletes it with the topic. Each entry is a report, a small JSON file, and the bytes in a
file next to it. Zeros at their end become a hole in the file: a preallocated log may have a gigabyte of them.

What must always be true: an entry is durable before the bytes are removed from the log. The name of an entry is made
from position and contents, so after a crash in between the same entry is written again, not a second one.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from duralog.errors import CorruptRecord
from duralog.format.filenames import HALF_WRITTEN_SUFFIX, FileKind, SegmentFile
from duralog.format.properties import decode_json_object
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import File, FileSystem
from duralog.storage.segment.damage import Damage

QUARANTINE_FOLDER = "duralog-quarantine"
REPORT_SUFFIX = ".json"
BYTES_SUFFIX = ".bytes"

REPORT_VERSION = 1

NO_OFFSET = -1

_COPIED_AT_ONCE = 4 << 20
_LARGEST_REPORT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReport:
    """The report of one entry: the bytes that were taken out of a log file, and why."""

    name: str
    """The name of the entry, and so of its two files, without their suffixes."""
    file: str
    """The log file that the bytes were in."""
    base_offset: int
    """The base offset of its segment."""
    start: int
    """The position of the bytes in that file."""
    end: int
    zeros_from: int
    """The position from which they are all zeros, or `end`."""
    fault: str
    reason: str
    expected: str
    found: str
    offset_before: int
    """The last offset that the log kept before these bytes; -1 for none."""
    offset_after: int
    """The first offset that it kept after them; -1 for none."""
    kafka: str
    """What Kafka would have done."""
    time_ms: int
    restored_batches: int = 0
    """The number of batches that were put back since."""
    version: int = REPORT_VERSION


class Quarantine:
    """The quarantine of one partition. The first entry creates the folder."""

    def __init__(self, fs: FileSystem, partition_folder: str, clock: Clock) -> None:
        self.folder = os.path.join(partition_folder, QUARANTINE_FOLDER)
        self._partition_folder = partition_folder
        self._fs = fs
        self._clock = clock

    def keep_range(
        self, file: File, damage: Damage, *, base_offset: int, offset_before: int, offset_after: int, kafka: str
    ) -> QuarantineReport:
        """Copy a range of a log file before the caller removes it."""
        self._make_folder()
        content_end = _end_of_content(file, damage.start, damage.end)
        half_written = os.path.join(self.folder, "range" + HALF_WRITTEN_SUFFIX)
        digest = self._copy(file, damage, content_end, half_written)
        report = self._report(
            damage.reason,
            name=f"{base_offset:020}-{damage.start}-{damage.end}-{digest}",
            base_offset=base_offset,
            start=damage.start,
            end=damage.end,
            zeros_from=content_end,
            offset_before=offset_before,
            offset_after=offset_after,
            kafka=kafka,
        )
        self._fs.rename(half_written, self._path(report.name, BYTES_SUFFIX))
        self._write(report)
        return report

    def keep_log(
        self,
        path: str,
        *,
        base_offset: int,
        size_bytes: int,
        reason: CorruptRecord,
        offset_before: int,
        kafka: str,
        offset_after: int = NO_OFFSET,
    ) -> QuarantineReport:
        """Move a whole log file. The caller removes its indexes, which can be rebuilt."""
        self._make_folder()
        name, attempt = f"{base_offset:020}-0-{size_bytes}", 1
        while self._fs.exists(self._path(name, BYTES_SUFFIX)):
            attempt += 1
            name = f"{base_offset:020}-0-{size_bytes}-{attempt}"
        report = self._report(
            reason,
            name=name,
            base_offset=base_offset,
            start=0,
            end=size_bytes,
            zeros_from=size_bytes,
            offset_before=offset_before,
            offset_after=offset_after,
            kafka=kafka,
        )
        # The report first: after a crash, it could not be written for a file that was moved.
        self._write(report)
        self._fs.rename(path, self._path(name, BYTES_SUFFIX))
        self._fs.sync_folder(self.folder)
        self._fs.sync_folder(self._partition_folder)
        return report

    def reports(self) -> list[QuarantineReport]:
        """The reports of all complete entries, sorted by name."""
        if not self._fs.exists(self.folder):
            return []
        names = {entry.name: entry.size for entry in self._fs.list(self.folder) if not entry.is_folder}
        found = []
        for name in sorted(names):
            stem = name.removesuffix(REPORT_SUFFIX)
            is_report = name.endswith(REPORT_SUFFIX) and names[name] <= _LARGEST_REPORT
            if is_report and stem + BYTES_SUFFIX in names:
                report = _decode(self._fs.read_all(os.path.join(self.folder, name)), stem)
                if report is not None:
                    found.append(report)
        return found

    def open(self, report: QuarantineReport) -> File:
        """The bytes of an entry."""
        return self._fs.open(self._path(report.name, BYTES_SUFFIX))

    def mark_restored(self, report: QuarantineReport, batches: int) -> None:
        self._write(replace(report, restored_batches=report.restored_batches + batches))

    def _report(self, reason: CorruptRecord, *, base_offset: int, **fields: Any) -> QuarantineReport:
        return QuarantineReport(
            file=SegmentFile(base_offset, FileKind.LOG).name,
            base_offset=base_offset,
            fault=reason.fault.name,
            reason=reason.reason,
            expected=str(reason.expected),
            found=str(reason.found),
            time_ms=self._clock(),
            **fields,
        )

    def _copy(self, file: File, damage: Damage, content_end: int, target_path: str) -> str:
        digest = hashlib.blake2b(digest_size=8)
        self._fs.remove(target_path)
        target = self._fs.open(target_path, writable=True, create=True)
        for position in range(damage.start, content_end, _COPIED_AT_ONCE):
            data = file.read(position, min(_COPIED_AT_ONCE, content_end - position))
            digest.update(data)
            target.append(data)
        target.truncate(damage.end - damage.start)
        target.sync()
        target.close()
        return digest.hexdigest()

    def _make_folder(self) -> None:
        # Synced even if it exists: the process that created it may have died before it synced.
        self._fs.make_folder(self.folder)
        self._fs.sync_folder(self._partition_folder)

    def _write(self, report: QuarantineReport) -> None:
        text = json.dumps(asdict(report), indent=1, sort_keys=True)
        self._fs.replace(self._path(report.name, REPORT_SUFFIX), f"{text}\n".encode())

    def _path(self, name: str, suffix: str) -> str:
        return os.path.join(self.folder, name + suffix)


def _decode(data: bytes, name: str) -> QuarantineReport | None:
    """The report; None if the file is not a valid one. The bytes of the entry are kept anyway."""
    try:
        report = QuarantineReport(**decode_json_object(data))
    except (CorruptRecord, TypeError):
        return None
    numbers = (report.base_offset, report.start, report.end, report.zeros_from, report.restored_batches, report.time_ms)
    offsets = (report.offset_before, report.offset_after)
    texts = (report.file, report.fault, report.reason, report.expected, report.found, report.kafka)
    is_right = (
        report.name == name
        and all(isinstance(number, int) and 0 <= number < 2**63 for number in numbers)
        and all(isinstance(offset, int) for offset in offsets)
        and all(isinstance(text, str) for text in texts)
    )
    return report if is_right else None


def _end_of_content(file: File, start: int, end: int) -> int:
    """The position where the zeros at the end of the range begin."""
    while end > start:
        position = max(start, end - _COPIED_AT_ONCE)
        content = len(file.read(position, end - position).rstrip(b"\0"))
        if content:
            return position + content
        end = position
    return start
