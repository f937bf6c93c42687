"""The sparse indexes of a segment, compared with its log while the log is read.

Two things are checked. Is every entry right, by the rules of Kafka's own dump tool? A wrong one misleads lookups: that
is a finding. And is it the index that the rule for writing indexes gives for this log? An index that grew over
restarts, or with another `index.interval.bytes`, may differ and is still valid.

All checks take the batches in order, piece after piece, and hold no more than the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, Fault
from duralog.format.index_entries import decode_offset_index, decode_time_index, used_bytes
from duralog.format.layout import NO_TIMESTAMP, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, Layout
from duralog.storage.checks.findings import OnFinding
from duralog.storage.segment.index_builder import IndexBuilder
from duralog.storage.segment.sparse_index import OFFSET_ENTRIES, TIME_ENTRIES, entries_rise


class _Entries:
    """The entries of an index as they are in its file. Those that break the order are reported and left out."""

    def __init__(
        self, path: str, data: bytes, layout: Layout, dtype: np.dtype[Any], base_offset: int, report: OnFinding
    ) -> None:
        self.path = path
        self._report = report
        used = used_bytes(data, layout)
        self.data = bytes(data[:used])
        """All entries, without the zeros that may follow them."""
        fields: NDArray[Any] = np.frombuffer(self.data, dtype)
        self._places = np.arange(0, used, layout.size)
        if len(data) % layout.size or not entries_rise(fields):
            refused: set[int] = set()

            def refuse(error: CorruptRecord) -> None:
                refused.add(-1 if error.position is None else error.position)
                report(error.in_file(path))

            decode = decode_offset_index if layout is OFFSET_INDEX_ENTRY else decode_time_index
            for _ in decode(data, base_offset, on_corrupt=refuse):
                pass
            kept = ~np.isin(self._places, list(refused))
            fields, self._places = fields[kept], self._places[kept]
        self.fields = fields
        self.offsets: NDArray[np.int64] = fields["relative_offset"].astype(np.int64) + base_offset

    def __len__(self) -> int:
        return len(self.fields)

    def wrong(self, number: int, reason: str, *, expected: object, found: object) -> None:
        self._report(
            CorruptRecord(
                reason,
                fault=Fault.FIELD_VALUE,
                file=self.path,
                position=int(self._places[number]),
                expected=expected,
                found=found,
            )
        )


class OffsetIndexCheck:
    """Every entry must name the last offset of the batch that starts at its position."""

    def __init__(self, path: str, data: bytes, base_offset: int, report: OnFinding) -> None:
        self.entries = _Entries(path, data, OFFSET_INDEX_ENTRY, OFFSET_ENTRIES, base_offset, report)
        self._positions: NDArray[np.int64] = self.entries.fields["position"].astype(np.int64)
        self._next = 0

    def add(self, batches: NDArray[Any]) -> None:
        if not len(batches):
            return
        starts = batches["position"]
        end = int(starts[-1]) + int(batches["size"][-1])
        first, self._next = self._next, int(np.searchsorted(self._positions, end))
        positions = self._positions[first : self._next]
        rows = np.clip(np.searchsorted(starts, positions, side="right") - 1, 0, None)
        is_wrong = starts[rows] != positions
        is_wrong |= batches["last_offset"][rows] != self.entries.offsets[first : self._next]
        for at in np.flatnonzero(is_wrong).tolist():
            batch = batches[rows[at]]
            self._wrong(first + at, int(batch["position"]), int(batch["last_offset"]))

    def _wrong(self, number: int, batch_start: int, last_offset: int) -> None:
        offset, position = int(self.entries.offsets[number]), int(self._positions[number])
        if batch_start != position:
            self.entries.wrong(
                number,
                "no batch starts at the position of the offset index",
                expected=f"the start of a batch, as at {batch_start}",
                found=f"position {position} for offset {offset}",
            )
        else:
            self.entries.wrong(
                number,
                "the offset index has another offset than the last one of the batch it points to",
                expected=f"last offset {last_offset} at position {position}",
                found=f"offset {offset}",
            )

    def finish(self, log_end: int) -> None:
        """REQUIRES: the log was read to its end, or to where it cannot be read further: `log_end`."""
        after_end = len(self.entries) - self._next
        if after_end:
            self.entries.wrong(
                self._next,
                f"the offset index points after the last batch of the log, {_times(after_end)}",
                expected=f"a position before {log_end}",
                found=f"position {self._positions[self._next]}",
            )


class TimeIndexCheck:
    """Every entry must name the largest timestamp so far, and the last offset of the first batch that reached it."""

    def __init__(self, path: str, data: bytes, base_offset: int, report: OnFinding) -> None:
        self.entries = _Entries(path, data, TIME_INDEX_ENTRY, TIME_ENTRIES, base_offset, report)
        self._timestamps: NDArray[np.int64] = self.entries.fields["timestamp"].astype(np.int64)
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
        self._next = max(first, int(np.searchsorted(self.entries.offsets, reached[-1], side="right")))
        offsets = self.entries.offsets[first : self._next]
        rows = np.searchsorted(reached, offsets)
        is_wrong = (ends[rows] != offsets) | (timestamps[rows] <= largest_before[rows])
        is_wrong |= timestamps[rows] != self._timestamps[first : self._next]
        for at in np.flatnonzero(is_wrong).tolist():
            row = rows[at]
            self._wrong(first + at, int(ends[row]), int(timestamps[row]), int(largest_before[row]))

    def _wrong(self, number: int, last_offset: int, timestamp: int, largest_before: int) -> None:
        if self.entries.offsets[number] != last_offset:
            self.entries.wrong(
                number,
                "the time index has an offset that is not the last of a batch",
                expected=f"the last offset of a batch, as {last_offset}",
                found=f"offset {self.entries.offsets[number]}",
            )
        elif self._timestamps[number] != timestamp:
            self.entries.wrong(
                number,
                "the time index has another timestamp than its batch",
                expected=f"{timestamp}, the largest of the batch that ends with offset {last_offset}",
                found=int(self._timestamps[number]),
            )
        else:
            self.entries.wrong(
                number,
                "the time index has a timestamp that is not above all before",
                expected=f"over {largest_before}, the largest before offset {last_offset}",
                found=timestamp,
            )

    def finish(self) -> None:
        """REQUIRES: the log was read to its end, or as far as it can be read."""
        after_end = len(self.entries) - self._next
        if after_end:
            self.entries.wrong(
                self._next,
                f"the time index has an offset after the last batch of the log, {_times(after_end)}",
                expected="an offset of the log",
                found=f"offset {self.entries.offsets[self._next]}",
            )


class RebuildCheck:
    """What both sparse indexes would hold if they were made from the log now."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes
        self._builder = IndexBuilder(base_offset, interval_bytes)

    def add(self, batches: NDArray[Any]) -> None:
        self._builder.add(batches)

    def differences(self, offsets: OffsetIndexCheck | None, times: TimeIndexCheck | None) -> list[tuple[str, str]]:
        """The paths of the indexes that differ, and how, in words. REQUIRES: the log is sound, and was added whole."""
        offset_entries, time_entries = self._builder.finish()
        found = []
        if offsets is not None and offsets.entries.data != offset_entries:
            found.append((offsets.entries.path, _difference(offsets.entries.data, offset_entries, OFFSET_ENTRIES)))
        # The last entry is added when the segment is closed: a segment that is written to lacks it.
        if times is not None and times.entries.data not in (time_entries, time_entries[: -TIME_INDEX_ENTRY.size]):
            found.append((times.entries.path, _difference(times.entries.data, time_entries, TIME_ENTRIES)))
        return found


def _difference(found: bytes, rebuilt: bytes, dtype: np.dtype[Any]) -> str:
    size = dtype.itemsize
    common = {found[at : at + size] for at in range(0, len(found), size)}
    common &= {rebuilt[at : at + size] for at in range(0, len(rebuilt), size)}
    count = len(found) // size
    return f"has {plural(count, 'entry')}, the log gives {len(rebuilt) // size:,}, the same in {len(common):,}"


def _times(entries: int) -> str:
    return "once" if entries == 1 else f"{entries:,} times"
