"""The way to a record, one step after the other, as `duralog lookup` shows it.

It is the way that every read takes: the segment by its name, a place in it by the sparse index, from there batch by
batch. Here each step is told, so the searches are written out; `storage.lookup` has the fast ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from duralog.cli.common.failures import printable
from duralog.cli.common.output import Output
from duralog.cli.common.tables import plural
from duralog.cli.common.times import format_time
from duralog.cli.dump.batches import Header, batch_object, batch_table, fitted_line, headers
from duralog.cli.dump.selection import Selection
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.columnar.render import render_json, render_text
from duralog.errors import CorruptRecord, OffsetOutOfRange
from duralog.format.filenames import FileKind
from duralog.format.index_entries import OffsetIndexEntry, TimeIndexEntry
from duralog.format.layout import CONTROL_BIT
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.reading import end_fault
from duralog.storage.segment.batch_walk import walk
from duralog.storage.segment.segment import Segment

_SHOWN_SEGMENTS = 4
_SHOWN_BATCHES = 8
_INDENT = "   > "


class LookupWalk:
    """Looks one thing up in one log. Each method returns whether it was found."""

    def __init__(self, log: PartitionLog, output: Output, progress: Any) -> None:
        self._log = log
        self._output = output
        self._progress = progress
        self._steps = 0

    def by_offset(self, offset: int) -> bool:
        log = self._log
        if not log.start_offset <= offset < log.end_offset:
            raise OffsetOutOfRange(
                f"{log.topic}-{log.partition} has no offset {offset}: "
                + (
                    f"its offsets are {log.start_offset} to {log.end_offset - 1}"
                    if log.end_offset > log.start_offset
                    else f"it is empty, the next offset is {log.end_offset}"
                )
            )
        segments = log.view.segments
        segment = segments.floor(offset) or segments.first
        self._show_segments(segments, segment, f"the last one whose base offset is not above {offset}")
        while True:
            entry = self._search_offsets(segment, offset)
            if self._walk(segment, entry.position, offset, first_offset=offset):
                return True
            following = segments.after(segment)
            if following is None:
                return self._nothing(f"there is no record from offset {offset} on")
            segment = following
            self._step(f"the next segment: {self._name(segment, FileKind.LOG)}")

    def by_time(self, timestamp_ms: int) -> bool:
        wanted = format_time(timestamp_ms)
        segments = self._log.view.segments
        candidates = [segment for segment in segments if segment.largest_timestamp_ms >= timestamp_ms]
        if not candidates:
            self._show_segments(segments, None, f"the first one with a record of {wanted} or later")
            return self._nothing(f"there is no record of {wanted} or later")
        self._show_segments(segments, candidates[0], f"the first one with a record of {wanted} or later")
        for segment in candidates:
            reached = self._search_times(segment, timestamp_ms)
            begin = max(reached.offset, self._log.start_offset)
            entry = self._search_offsets(segment, begin)
            first = self._log.start_offset
            if self._walk(segment, entry.position, begin, first_offset=first, since_ms=timestamp_ms):
                return True
        return self._nothing(f"there is no record of {wanted} or later")

    def by_key(self, key: bytes) -> bool:
        """The newest record with the key: the one that compaction would keep."""
        self._step("every record, the newest segment first: no index knows keys")
        for segment in reversed(self._log.view.segments):
            found, batches = self._last_with_key(segment, key)
            self._line(
                f"{self._name(segment, FileKind.LOG)}: {plural(batches, 'batch')}, {segment.size_bytes:,} bytes read",
                is_chosen=found is not None,
            )
            self._object(
                kind="scan",
                file=segment.path(FileKind.LOG),
                batches=batches,
                bytes=segment.size_bytes,
                found=found is not None,
            )
            if found is not None:
                batch = Header._make(found.batches[found.batch_row[0]].tolist())
                self._search_offsets(segment, batch.last_offset)
                self._step(f"the batch, at position {batch.position} of {self._name(segment, FileKind.LOG)}")
                self._show_batches(segment, [batch], 0)
                self._show_record(found)
                return True
        return self._nothing("there is no record with this key")

    # Steps

    def _search_offsets(self, segment: Segment, offset: int) -> OffsetIndexEntry:
        entries = list(segment.offset_index.entries())
        self._step(f"{self._index_title(segment, FileKind.OFFSET_INDEX, len(entries))} the last one not above {offset}")
        place = -1
        for number, is_above in self._probes(len(entries), [entry.offset for entry in entries], offset):
            entry = entries[number]
            self._line(
                f"entry {number + 1} of {len(entries)}: offset {entry.offset} at position {entry.position}:"
                f" {'above, so before it' if is_above else 'not above, so here or after it'}"
            )
            self._object(kind="probe", index="offset", entry=number, offset=entry.offset, position=entry.position)
            place = place if is_above else number
        found = OffsetIndexEntry(segment.base_offset, 0) if place < 0 else entries[place]
        what = "no entry: from the start of the log" if place < 0 else f"entry {place + 1}: offset {found.offset}"
        self._line(f"{what}, position {found.position}", is_chosen=True)
        self._object(
            kind="index_entry",
            index="offset",
            file=segment.path(FileKind.OFFSET_INDEX),
            entry=None if place < 0 else place,
            offset=found.offset,
            position=found.position,
        )
        return found

    def _search_times(self, segment: Segment, timestamp_ms: int) -> TimeIndexEntry:
        entries = list(segment.time_index.entries())
        title = self._index_title(segment, FileKind.TIME_INDEX, len(entries))
        self._step(f"{title} the last one not after {format_time(timestamp_ms)}")
        place = -1
        for number, is_above in self._probes(len(entries), [entry.timestamp_ms for entry in entries], timestamp_ms):
            entry = entries[number]
            self._line(
                f"entry {number + 1} of {len(entries)}: {format_time(entry.timestamp_ms)} at offset {entry.offset}:"
                f" {'after, so before it' if is_above else 'not after, so here or behind it'}"
            )
            self._object(kind="probe", index="time", entry=number, timestamp=entry.timestamp_ms, offset=entry.offset)
            place = place if is_above else number
        found = TimeIndexEntry(-1, segment.base_offset) if place < 0 else entries[place]
        what = "no entry" if place < 0 else f"entry {place + 1}: {format_time(found.timestamp_ms)}"
        self._line(f"{what}: nothing before offset {found.offset} is that late", is_chosen=True)
        self._object(
            kind="index_entry",
            index="time",
            file=segment.path(FileKind.TIME_INDEX),
            entry=None if place < 0 else place,
            timestamp=found.timestamp_ms,
            offset=found.offset,
        )
        return found

    def _probes(self, count: int, keys: Sequence[int], target: int) -> Iterator[tuple[int, bool]]:
        """A binary search: each entry that is looked at, and whether it lies above the target."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            is_above = keys[middle] > target
            yield middle, is_above
            low, high = (low, middle) if is_above else (middle + 1, high)

    def _walk(
        self, segment: Segment, position: int, begin: int, *, first_offset: int, since_ms: int | None = None
    ) -> bool:
        """Go from batch to batch until one holds the record, and show it. The index gave `position` for `begin`.

        If there is no batch, or one behind `begin`, the index is wrong: then it goes from the start of the log.
        Damage on the way is raised.
        """
        if position and not _is_right(segment, position, begin):
            path = segment.path(FileKind.OFFSET_INDEX)
            self._output.note(path, f"the entry is wrong, there is another batch or none at position {position}")
            position = 0
        until = f"one reaches offset {first_offset}" if since_ms is None else f"one reaches {format_time(since_ms)}"
        self._step(f"{self._name(segment, FileKind.LOG)}: from position {position}, batch by batch, until {until}")
        passed: list[Header] = []
        count = 0
        for piece in segment.batches_from(position):
            for row, batch in enumerate(headers(piece.batches)):
                count += 1
                passed = [*passed[-_SHOWN_BATCHES + 1 :], batch]
                is_reached = batch.last_offset >= first_offset
                if not is_reached or (since_ms is not None and batch.max_timestamp < since_ms):
                    continue
                found = _first_record(piece, row, first_offset, since_ms)
                if found is not None:
                    self._show_batches(segment, passed, count - len(passed))
                    self._show_record(found, wanted=first_offset if since_ms is None else None)
                    return True
            fault = end_fault(piece)
            if fault is not None:
                raise fault
        self._show_batches(segment, passed, count - len(passed), found=False)
        return False

    def _last_with_key(self, segment: Segment, key: bytes) -> tuple[DecodedRecords | None, int]:
        selection = Selection(key=key)
        found: DecodedRecords | None = None
        batches = 0
        self._progress.begin(self._name(segment, FileKind.LOG))
        for piece in segment.batches_from(0):
            batches += len(piece.batches)
            is_data = (piece.batches["magic"] < 2) | (piece.batches["attributes"] & CONTROL_BIT == 0)
            for decoded in piece.decode(
                np.flatnonzero(is_data), on_corrupt=lambda error, _: self._output.finding(error)
            ):
                chosen = selection.records(decoded)
                chosen = chosen.take(np.flatnonzero(chosen.columns.offset >= self._log.start_offset))
                if len(chosen):
                    found = chosen.take(slice(len(chosen) - 1, len(chosen)))
            fault = end_fault(piece)
            if fault is not None:
                self._output.finding(fault)
            self._progress.advance(len(piece.data))
        return found, batches

    # Showing

    def _show_segments(self, segments: Sequence[Segment], chosen: Segment | None, how: str) -> None:
        self._step(f"{plural(len(segments), 'segment')}; {how}")
        place = len(segments) - 1 if chosen is None else list(segments).index(chosen)
        first = max(0, min(place - _SHOWN_SEGMENTS // 2, len(segments) - _SHOWN_SEGMENTS - 1))
        last = min(len(segments), first + _SHOWN_SEGMENTS + 1)
        if first:
            self._line(f"... {first:,} before")
        for segment in segments[first:last]:
            newest = segment.largest_timestamp_ms
            self._line(
                f"{self._name(segment, FileKind.LOG)}  base offset {segment.base_offset},"
                f" {plural(segment.size_bytes, 'byte')}, newest record {format_time(newest)}",
                is_chosen=segment is chosen,
            )
        if last < len(segments):
            self._line(f"... {len(segments) - last:,} behind")
        if chosen is not None:
            self._object(
                kind="segment",
                file=chosen.path(FileKind.LOG),
                base_offset=chosen.base_offset,
                bytes=chosen.size_bytes,
                newest_timestamp=chosen.largest_timestamp_ms,
            )

    def _show_batches(self, segment: Segment, batches: list[Header], before: int, *, found: bool = True) -> None:
        path = json.dumps(segment.path(FileKind.LOG))
        table = batch_table(self._output, indent=len(_INDENT))
        self._line(table.header())
        if before:
            self._line(f"... {plural(before, 'batch')} before")
        for batch in batches:
            if self._output.as_json:
                self._output.line(batch_object(batch, path))
            else:
                self._line(fitted_line(batch, table), is_chosen=found and batch is batches[-1])

    def _show_record(self, found: DecodedRecords, *, wanted: int | None = None) -> None:
        offset = int(found.columns.offset[0])
        batch = found.batches[found.batch_row[0]]
        place = int(offset - batch["base_offset"]) if batch["base_offset"] >= 0 else None
        self._step("the record" if place is None else f"the record, offset {place} of its batch")
        if self._output.as_json:
            prefix = f'"kind":"record","topic":{json.dumps(self._log.topic)},"partition":{self._log.partition},'
            self._output.write(render_json(found, prefix.encode()))
        else:
            self._output.write(render_text(found, b"   > "))
        if batch["magic"] >= 2 and batch["attributes"] & CONTROL_BIT:
            self._output.note(self._log.folder, "it is a control record: consumers do not see it")
        if wanted is not None and offset != wanted:
            self._output.note(
                self._log.folder, f"offset {wanted} has no record any more, compaction removed it; {offset} is the next"
            )

    def _nothing(self, why: str) -> bool:
        self._object(kind="nothing", reason=why)
        self._line(why, is_chosen=True)
        return False

    def _index_title(self, segment: Segment, kind: FileKind, count: int) -> str:
        return f"{self._name(segment, kind)}, {plural(count, 'entry')};"

    def _name(self, segment: Segment, kind: FileKind) -> str:
        return printable(segment.path(kind).rpartition("/")[2])

    def _step(self, title: str) -> None:
        self._steps += 1
        self._output.heading(f"{self._steps}. {title}")

    def _line(self, text: str, *, is_chosen: bool = False) -> None:
        if not self._output.as_json and not self._output.quiet:
            self._output.line(f"   {'>' if is_chosen else ' '} {text}")

    def _object(self, **fields: Any) -> None:
        if self._output.as_json:
            self._output.object(fields)


def _is_right(segment: Segment, position: int, begin: int) -> bool:
    """Whether the batch at the position of an index entry ends at the offset that was looked up, or before."""
    try:
        batch = next(walk(segment.file, position, segment.size_bytes), None)
    except CorruptRecord:
        return False
    return batch is not None and batch.last_offset <= begin


def _first_record(piece: Piece, row: int, first_offset: int, since_ms: int | None) -> DecodedRecords | None:
    for decoded in piece.decode(np.array([row], np.intp)):
        columns = decoded.columns
        chosen = columns.offset >= first_offset
        if since_ms is not None:
            chosen &= columns.timestamp >= since_ms
        rows = np.flatnonzero(chosen)
        if len(rows):
            return decoded.take(rows[:1])
    return None
