"""The quarantines of all partitions of a directory: bytes that recovery or repair removed from logs."""

from __future__ import annotations

import os
from collections.abc import Iterable

from duralog.config.error_text import printable
from duralog.console.facts.health import QuarantineEntry
from duralog.errors import DuralogError
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.read_only_partitions import PartitionView
from duralog.storage.recovery.quarantine import BYTES_SUFFIX, NO_OFFSET, Quarantine

_MOST_ENTRIES = 1_000


def quarantine_entries(directory: str, views: Iterable[PartitionView]) -> tuple[QuarantineEntry, ...]:
    """The newest first. A partition whose quarantine cannot be read is left out: its view has the error."""
    files = LocalFileSystem()
    found: list[QuarantineEntry] = []
    for view in views:
        if not view.has_quarantine:
            continue
        quarantine = Quarantine(files, view.folder, wall_clock_ms)
        try:
            reports = quarantine.reports()
        except DuralogError:
            continue
        found += [
            QuarantineEntry(
                topic=view.partition.topic,
                partition=view.partition.partition,
                file=printable(report.file),
                start=report.start,
                end=report.end,
                reason=printable(f"{report.reason} (expected {report.expected}, found {report.found})"),
                offset_before=None if report.offset_before == NO_OFFSET else report.offset_before,
                offset_after=None if report.offset_after == NO_OFFSET else report.offset_after,
                time_ms=report.time_ms,
                restored_batches=report.restored_batches,
                path=printable(os.path.relpath(os.path.join(quarantine.folder, report.name + BYTES_SUFFIX), directory)),
            )
            for report in reports
        ]
    found.sort(key=lambda entry: -entry.time_ms)
    return tuple(found[:_MOST_ENTRIES])
