"""The indexes of a segment against its log, while the log streams by.

Two questions are asked of each index. Does every entry tell the truth, as Kafka's own dump tool checks it? What is
wrong there leads a lookup astray: a finding. And is it the index that the rule for writing indexes gives for this
log? An index that grew over restarts, or with another `index.interval.bytes`, may differ and still serve: a note,
unless the interval was given, which makes it a finding.

All checks take the batches in order, piece after piece, and hold no more than the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump_batches import Header, Report, headers
from duralog.errors import CorruptRecord, Fault
from duralog.format.index_entries import (
    IndexRule,
    OffsetIndexEntry,
    TimeIndexEntry,
    decode_offset_index,
    decode_time_index,
    used_bytes,
)
from duralog.format.layout import NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout


class IndexFile:
    """The entries of a sparse index as they stand in a file, and where each stands."""

    def __init__(self, path: str, data: bytes, layout: Layout, decode: Any, base_offset: int, report: Report) -> None:
        self.path = path
        self._report = report
        refused: set[int] = set()

        def refuse(error: CorruptRecord) -> None:
            refused.add(-1 if error.position is None else error.position)
            report(error.in_file(path))

        self.entries: list[Any] = list(decode(data, base_offset, on_corrupt=refuse))
        self.offsets = np.array([entry.offset for entry in self.entries], np.int64)
        places = range(0, used_bytes(data, layout), layout.size)
        self._places = [place for place in places if place not in refused] if refused else places

    def wrong(self, number: int, reason: str, *, expected: object, found: object) -> None:
        self._report(
            CorruptRecord(
                reason,
                fault=Fault.FIELD_VALUE,
                file=self.path,
                position=self._places[number],
                expected=expected,
                found=found,
            )
        )


class OffsetIndexCheck:
    """Every entry must name the last offset of the batch that starts at its position."""

    def __init__(self, path: str, data: bytes, base_offset: int, report: Report) -> None:
        self.file = IndexFile(path, data, OFFSET_INDEX_ENTRY, decode_offset_index, base_offset, report)
        self._positions = np.array([entry.position for entry in self.file.entries], np.int64)
        self._next = 0

    def add(self, batches: NDArray[Any]) -> None:
        if not len(batches):
            return
        starts = batches["position"]
        end = int(starts[-1]) + int(batches["size"][-1])
        first, self._next = self._next, int(np.searchsorted(self._positions, end))
        positions = self._positions[first : self._next]
        rows = np.clip(np.searchsorted(starts, positions, side="right") - 1, 0, None)
        for at in np.flatnonzero(
            (starts[rows] != positions) | (batches["last_offset"][rows] != self.file.offsets[first : self._next])
        ):
            self._wrong(first + int(at), starts[rows[at]], batches["last_offset"][rows[at]])

    def _wrong(self, number: int, batch_start: int, last_offset: int) -> None:
        entry = self.file.entries[number]
        if batch_start != entry.position:
            self.file.wrong(
                number,
                "no batch starts where the offset index points",
                expected=f"the start of a batch, as at {batch_start}",
                found=f"position {entry.position} for offset {entry.offset}",
            )
        else:
            self.file.wrong(
                number,
                "the offset index names another offset than the batch it points to ends with",
                expected=f"last offset {last_offset} at position {entry.position}",
                found=f"offset {entry.offset}",
            )

    def finish(self, log_end: int) -> None:
        """REQUIRES: the log was read to its end, or to where it cannot be read further: `log_end`."""
        behind = len(self.file.entries) - self._next
        if behind:
            self.file.wrong(
                self._next,
                f"the offset index points behind the last batch of the log, {_times(behind)}",
                expected=f"a position before {log_end}",
                found=f"position {self.file.entries[self._next].position}",
            )


class TimeIndexCheck:
    """Every entry must name the largest timestamp so far, and the last offset of the first batch that reached it."""

    def __init__(self, path: str, data: bytes, base_offset: int, report: Report) -> None:
        self.file = IndexFile(path, data, TIME_INDEX_ENTRY, decode_time_index, base_offset, report)
        self._next = 0
        self._largest = NO_TIMESTAMP

    def add(self, batches: NDArray[Any]) -> None:
        if not len(batches):
            return
        ends, timestamps = batches["last_offset"], batches["max_timestamp"]
        largest_before = np.maximum.accumulate(np.concatenate(([self._largest], timestamps)))[:-1]
        self._largest = max(self._largest, int(timestamps.max()))
        # In a damaged log offsets may go back: a search needs them to rise.
        reached = np.maximum.accumulate(ends)
        first = self._next
        self._next = max(first, int(np.searchsorted(self.file.offsets, reached[-1], side="right")))
        rows = np.searchsorted(reached, self.file.offsets[first : self._next])
        for number, row in enumerate(rows.tolist(), start=first):
            self._check(number, int(ends[row]), int(timestamps[row]), int(largest_before[row]))

    def _check(self, number: int, last_offset: int, timestamp: int, largest_before: int) -> None:
        entry = self.file.entries[number]
        if entry.offset != last_offset:
            self.file.wrong(
                number,
                "the time index names an offset that is no batch's last",
                expected=f"the last offset of a batch, as {last_offset}",
                found=f"offset {entry.offset}",
            )
        elif entry.timestamp_ms != timestamp:
            self.file.wrong(
                number,
                "the time index names another timestamp than its batch has",
                expected=f"{timestamp}, the largest of the batch that ends with offset {last_offset}",
                found=entry.timestamp_ms,
            )
        elif timestamp <= largest_before:
            self.file.wrong(
                number,
                "the time index names a timestamp that was reached before",
                expected=f"over {largest_before}, the largest before offset {last_offset}",
                found=timestamp,
            )

    def finish(self, log_end: int) -> None:  # noqa: ARG002 (the same for all checks)
        """REQUIRES: the log was read to its end, or as far as it can be read."""
        behind = len(self.file.entries) - self._next
        if behind:
            self.file.wrong(
                self._next,
                f"the time index names an offset behind the last batch of the log, {_times(behind)}",
                expected="an offset of the log",
                found=f"offset {self.file.entries[self._next].offset}",
            )


class RebuildCheck:
    """What both sparse indexes would hold if they were made from the log now."""

    def __init__(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self._rule = IndexRule(interval_bytes=interval_bytes)
        self._offsets: list[OffsetIndexEntry] = []
        self._times: list[TimeIndexEntry] = []

    def add(self, batches: NDArray[Any]) -> None:
        for batch in headers(batches):
            offset_entry, time_entry = self._rule.add(_IndexedBatch(batch))
            if offset_entry is not None:
                self._offsets.append(offset_entry)
            if time_entry is not None:
                self._times.append(time_entry)

    def offset_difference(self, entries: Sequence[OffsetIndexEntry]) -> str | None:
        """How the file differs from what the rule gives, in words; None where it does not."""
        return _difference(entries, self._offsets)

    def time_difference(self, entries: Sequence[TimeIndexEntry]) -> str | None:
        # The last entry is added when the segment is closed: a segment that is written to lacks it.
        if list(entries) == self._times:
            return None
        final = self._rule.finish()
        return _difference(entries, self._times if final is None else [*self._times, final])


class _IndexedBatch:
    """A row as the rule for indexes wants to see a batch."""

    __slots__ = ("last_offset", "max_timestamp_ms", "position", "size_bytes")

    def __init__(self, batch: Header) -> None:
        self.position = batch.position
        self.size_bytes = batch.size
        self.last_offset = batch.last_offset
        self.max_timestamp_ms = batch.max_timestamp


def _difference(found: Sequence[Any], rebuilt: Sequence[Any]) -> str | None:
    if list(found) == list(rebuilt):
        return None
    common = set(found) & set(rebuilt)
    return f"has {_entries(len(found))}, the log gives {len(rebuilt):,}, and {len(common):,} are the same"


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _times(entries: int) -> str:
    return "once" if entries == 1 else f"{entries:,} times"
