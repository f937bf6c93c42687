"""Counts over the batch headers of a log: nothing is decompressed or decoded.

Batches with a wrong checksum are counted as such and excluded from everything else: their fields cannot be trusted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.batches import CODEC_LABELS
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import Table, plural
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.format.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from duralog.storage.disk.found_files import FoundFile

_SHOWN_GAPS = 5
_ADDED_UP = (
    "files",
    "bytes",
    "batches",
    "records",
    "shown",
    "wrappers",
    "control_batches",
    "transactional_batches",
    "empty_batches",
    "gaps",
    "missing_offsets",
    "removed_offsets",
    "bad_batches",
    "findings",
    "zero_bytes",
)


@dataclass(slots=True)
class Summary:
    """Counts over one file, or over the files of one partition in their order."""

    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    shown: int = 0
    """Records that were shown or written, if only some were selected."""
    wrappers: int = 0
    """Compressed v0 and v1 messages, whose records are not counted."""
    control_batches: int = 0
    transactional_batches: int = 0
    empty_batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    starts_with_wrapper: bool = False
    """If so, `first_offset` is the last one of the first message."""
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    gaps: int = 0
    """Places where a batch does not start right after the batch before it."""
    missing_offsets: int = 0
    """Offsets in those gaps."""
    removed_offsets: int = 0
    """Offsets without a record inside of batches, as compaction leaves them."""
    first_gaps: list[tuple[int, int]] = field(default_factory=list)
    """The first missing offset, and the first one after the gap."""
    bad_batches: int = 0
    findings: int = 0
    zero_bytes: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    first_epoch: int | None = None
    last_epoch: int | None = None

    def add(self, batches: NDArray[Any]) -> None:
        """Count batches, in the order of the log."""
        bad = batches["crc_ok"] == 0
        self.bad_batches += int(np.count_nonzero(bad))
        if bad.any():
            batches = batches[~bad]
        if not len(batches):
            return
        self._count_kinds(batches)
        self._count_offsets(batches)
        self._count_times(batches)

    def merge(self, other: Summary) -> None:
        """Count another file of the same partition, the next one in order."""
        if (
            other.first_offset is not None
            and self.last_offset is not None
            and other.first_offset > self.last_offset + 1
        ):
            self._gap(self.last_offset + 1, other.first_offset)
        for name in _ADDED_UP:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_gaps = [*self.first_gaps, *other.first_gaps][:_SHOWN_GAPS]
        self.codecs += other.codecs
        self.magics += other.magics
        self.first_epoch = _least(self.first_epoch, other.first_epoch)
        self.last_epoch = _largest(self.last_epoch, other.last_epoch)
        if self.first_offset is None:
            self.starts_with_wrapper = other.starts_with_wrapper
        self.first_offset = _least(self.first_offset, other.first_offset)
        self.last_offset = _largest(self.last_offset, other.last_offset)
        self.first_timestamp = _least(self.first_timestamp, other.first_timestamp)
        self.last_timestamp = _largest(self.last_timestamp, other.last_timestamp)

    def _count_kinds(self, batches: NDArray[Any]) -> None:
        magic, attributes, count = batches["magic"], batches["attributes"], batches["record_count"]
        is_v2 = magic >= 2
        self.batches += len(batches)
        self.records += int(count[count > 0].sum(dtype=np.int64))
        self.wrappers += int(np.count_nonzero(~is_v2 & (count < 0)))
        self.empty_batches += int(np.count_nonzero(count == 0))
        self.control_batches += int(np.count_nonzero(is_v2 & (attributes & CONTROL_BIT != 0)))
        self.transactional_batches += int(np.count_nonzero(is_v2 & (attributes & TRANSACTIONAL_BIT != 0)))
        for codec, times in _occurrences(attributes & CODEC_MASK):
            self.codecs[CODEC_LABELS[codec]] += times
        for version, times in _occurrences(magic):
            self.magics[version] += times
        epochs = batches["leader_epoch"][is_v2]
        if len(epochs):
            self.first_epoch = _least(self.first_epoch, int(epochs.min()))
            self.last_epoch = _largest(self.last_epoch, int(epochs.max()))

    def _count_offsets(self, batches: NDArray[Any]) -> None:
        base, last, count = batches["base_offset"], batches["last_offset"], batches["record_count"]
        known = base >= 0
        before = np.empty_like(last)
        before[1:] = last[:-1]
        before[0] = base[0] - 1 if self.last_offset is None else self.last_offset
        for row in np.flatnonzero(known & (base > before + 1)).tolist():
            self._gap(int(before[row]) + 1, int(base[row]))
        inside = (last - base + 1 - count)[known]
        self.removed_offsets += int(inside[inside > 0].sum())
        if self.first_offset is None:
            self.starts_with_wrapper = not known[0]
        self.first_offset = _least(self.first_offset, int(base[0]) if known[0] else int(last[0]))
        self.last_offset = _largest(self.last_offset, int(last.max()))

    def _count_times(self, batches: NDArray[Any]) -> None:
        largest = batches["max_timestamp"]
        # Compaction stores the delete horizon in place of the first timestamp.
        has_horizon = (batches["magic"] >= 2) & (batches["attributes"] & DELETE_HORIZON_BIT != 0)
        first = np.where(has_horizon, largest, np.minimum(batches["base_timestamp"], largest))
        first, largest = first[first != NO_TIMESTAMP], largest[largest != NO_TIMESTAMP]
        if len(first):
            self.first_timestamp = _least(self.first_timestamp, int(first.min()))
        if len(largest):
            self.last_timestamp = _largest(self.last_timestamp, int(largest.max()))

    def _gap(self, missing: int, there_again: int) -> None:
        self.gaps += 1
        self.missing_offsets += there_again - missing
        if len(self.first_gaps) < _SHOWN_GAPS:
            self.first_gaps.append((missing, there_again))

    def as_object(self) -> dict[str, Any]:
        return {
            "files": self.files,
            "bytes": self.bytes,
            "batches": self.batches,
            "records": self.records,
            "compressed_messages": self.wrappers,
            "control_batches": self.control_batches,
            "transactional_batches": self.transactional_batches,
            "empty_batches": self.empty_batches,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "first_timestamp": self.first_timestamp,
            "last_timestamp": self.last_timestamp,
            "codecs": dict(sorted(self.codecs.items())),
            "magics": {str(magic): times for magic, times in sorted(self.magics.items())},
            "first_leader_epoch": self.first_epoch,
            "last_leader_epoch": self.last_epoch,
            "gaps": self.gaps,
            "missing_offsets": self.missing_offsets,
            "removed_offsets": self.removed_offsets,
            "bad_batches": self.bad_batches,
            "zero_bytes": self.zero_bytes,
            "findings": self.findings,
        }

    def as_lines(self, *, only_some: bool) -> list[str]:
        """For people: a label and its count on each line; empty ones are left out."""
        lines = [f"  batches     {self.batches:,}{self._kinds()}", f"  records     {self._records()}"]
        if only_some:
            lines.append(f"  selected    {self.shown:,} of them")
        if self.first_offset is not None:
            before = " or before" if self.starts_with_wrapper else ""
            lines.append(f"  offsets     {self.first_offset}{before} to {self.last_offset}")
        if self.first_timestamp is not None and self.last_timestamp is not None:
            lines.append(f"  timestamps  {format_time(self.first_timestamp)} to {format_time(self.last_timestamp)}")
        lines.append(f"  bytes       {self.bytes:,} in {plural(self.files, 'file')}")
        if self.codecs:
            lines.append("  codecs      " + ", ".join(f"{name} {times:,}" for name, times in self.codecs.most_common()))
        if set(self.magics) - {2}:
            lines.append(
                "  formats     " + ", ".join(f"v{magic} {times:,}" for magic, times in sorted(self.magics.items()))
            )
        if self.last_epoch is not None and self.last_epoch >= 0:
            lines.append(f"  epochs      {self.first_epoch} to {self.last_epoch}")
        if self.gaps:
            first = ", ".join(f"{missing} to {again - 1}" for missing, again in self.first_gaps)
            more = ", ..." if self.gaps > len(self.first_gaps) else ""
            lines.append(f"  gaps        {self.gaps:,} with {plural(self.missing_offsets, 'offset')}: {first}{more}")
        if self.removed_offsets:
            lines.append(f"  compacted   {plural(self.removed_offsets, 'offset')} inside batches without a record")
        if self.zero_bytes:
            lines.append(f"  unused      {plural(self.zero_bytes, 'zero byte')} at the end, preallocated")
        lines.append(f"  corrupt     {self._corrupt()}")
        return lines

    def _records(self) -> str:
        if not self.wrappers:
            return f"{self.records:,}"
        inside = f"those in {plural(self.wrappers, 'compressed v0 or v1 message')}, which only --records counts"
        return f"{self.records:,} and {inside}" if self.records else inside

    def _kinds(self) -> str:
        kinds = [
            (self.transactional_batches, "transactional"),
            (self.control_batches, "control"),
            (self.empty_batches, "empty"),
        ]
        text = ", ".join(f"{times:,} {name}" for times, name in kinds if times)
        return f" ({text})" if text else ""

    def _corrupt(self) -> str:
        if not self.findings:
            return "nothing"
        findings = plural(self.findings, "finding")
        bad = f" (batches with a wrong checksum: {self.bad_batches:,})" if self.bad_batches else ""
        return f"{findings}{bad}: see the lines that start with !"


def write_summaries(
    logs: list[tuple[FoundFile, Summary]], output: Output, *, with_files: bool, only_some: bool
) -> None:
    """The summary of logs that belong together and, with `with_files`, a line for each file before it."""
    total = Summary()
    for _, summary in logs:
        total.merge(summary)
    folder = logs[0][0].folder or "."
    if output.as_json:
        for file, summary in logs:
            output.object({"kind": "file_summary", "file": file.path, **summary.as_object()})
        output.object({"kind": "summary", "folder": folder, **total.as_object()})
        return
    name = folder if len(logs) > 1 else logs[0][0].path
    output.heading(f"summary of {printable(name)}")
    if with_files and len(logs) > 1:
        table = Table(output, _FILE_COLUMNS, cut=("file",), least=("last_timestamp", "batches", "first_offset"))
        table.begin()
        for file, summary in logs:
            table.row(_file_cells(file, summary))
        table.end()
    for line in total.as_lines(only_some=only_some):
        output.line(line)


_FILE_COLUMNS = {
    "first_offset": 12,
    "last_offset": 12,
    "batches": 9,
    "records": 11,
    "bytes": 13,
    "last_timestamp": -24,
    "findings": 8,
    "file": -24,
}


def _file_cells(file: FoundFile, summary: Summary) -> list[str]:
    first = "-" if summary.first_offset is None else summary.first_offset
    last = "-" if summary.last_offset is None else summary.last_offset
    records = "-" if summary.wrappers else summary.records
    newest = NO_TIMESTAMP if summary.last_timestamp is None else summary.last_timestamp
    return [
        str(first),
        str(last),
        str(summary.batches),
        str(records),
        str(summary.bytes),
        format_time(newest),
        str(summary.findings),
        printable(file.name),
    ]


def _occurrences(values: NDArray[Any]) -> list[tuple[int, int]]:
    numbers, times = np.unique(values, return_counts=True)
    return list(zip(numbers.tolist(), times.tolist(), strict=True))


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _largest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
