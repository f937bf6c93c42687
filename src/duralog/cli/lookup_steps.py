"""The steps to a record, as `duralog lookup` shows them: as text, or as JSON objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from duralog.cli.dump.batches import batch_object, batch_table, fitted_line, headers
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.render import render_json, render_text
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.format.filenames import FileKind
from duralog.format.index_entries import OffsetIndexEntry, TimeIndexEntry
from duralog.format.layout import CONTROL_BIT
from duralog.operations.lookup import (
    AtOffset,
    BatchesPassed,
    BatchFound,
    DamageMet,
    EntryIsWrong,
    IndexSearched,
    NextSegment,
    NothingFound,
    RecordFound,
    ScanStarted,
    SegmentChosen,
    SegmentScanned,
    SinceTime,
    Step,
    Target,
    WalkStarted,
)
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.segment.segment import Segment

if TYPE_CHECKING:
    from duralog.cli.dump.decoded_lines import DecodedLines

_SHOWN_SEGMENTS = 4
_INDENT = "   > "


class LookupSteps:
    def __init__(self, log: PartitionLog, output: Output, decoded: DecodedLines | None = None) -> None:
        """`decoded` shows the record if its key or value is to be decoded."""
        self._log = log
        self._output = output
        self._decoded = decoded
        self._steps = 0

    def show(self, step: Step) -> None:
        match step:
            case SegmentChosen():
                self._show_segments(step)
            case NextSegment(segment):
                self._step(f"the next segment: {_name(segment, FileKind.LOG)}")
            case IndexSearched():
                self._show_search(step)
            case EntryIsWrong(segment, position):
                path = segment.path(FileKind.OFFSET_INDEX)
                self._output.note(path, f"the entry is wrong, there is another batch or none at position {position}")
            case WalkStarted(segment, position, target):
                name = _name(segment, FileKind.LOG)
                self._step(f"{name}: from position {position}, batch by batch, until one reaches {_words(target)}")
            case BatchesPassed(segment, batches, before, is_found):
                self._show_batches(segment, batches, before, is_found=is_found)
            case ScanStarted():
                self._step("every record, the newest segment first: no index knows keys")
            case SegmentScanned():
                self._show_scan(step)
            case BatchFound(segment, batches):
                position = batches["position"][0]
                self._step(f"the batch, at position {position} of {_name(segment, FileKind.LOG)}")
                self._show_batches(segment, batches, 0, is_found=True)
            case RecordFound(records, wanted):
                self._show_record(records, wanted)
            case NothingFound(target):
                why = _nothing(target)
                self._object(kind="nothing", reason=why)
                self._line(why, is_chosen=True)
            case DamageMet(error):
                self._output.finding(error)

    def _show_segments(self, step: SegmentChosen) -> None:
        segments, chosen = step.segments, step.chosen
        if isinstance(step.target, AtOffset):
            how = f"the last one whose base offset is not above {step.target.offset}"
        else:
            how = f"the first one with a record of {format_time(step.target.timestamp_ms)} or later"
        self._step(f"{plural(len(segments), 'segment')}; {how}")
        place = len(segments) - 1 if chosen is None else list(segments).index(chosen)
        first = max(0, min(place - _SHOWN_SEGMENTS // 2, len(segments) - _SHOWN_SEGMENTS - 1))
        last = min(len(segments), first + _SHOWN_SEGMENTS + 1)
        if first:
            self._line(f"... {first:,} before")
        for segment in segments[first:last]:
            newest = segment.largest_timestamp_ms
            self._line(
                f"{_name(segment, FileKind.LOG)}  base offset {segment.base_offset},"
                f" {plural(segment.size_bytes, 'byte')}, newest record {format_time(newest)}",
                is_chosen=segment is chosen,
            )
        if last < len(segments):
            self._line(f"... {len(segments) - last:,} after")
        if chosen is not None:
            self._object(
                kind="segment",
                file=chosen.path(FileKind.LOG),
                base_offset=chosen.base_offset,
                bytes=chosen.size_bytes,
                newest_timestamp=chosen.largest_timestamp_ms,
            )

    def _show_search(self, step: IndexSearched) -> None:
        is_time = isinstance(step.target, SinceTime)
        kind = FileKind.TIME_INDEX if is_time else FileKind.OFFSET_INDEX
        index = "time" if is_time else "offset"
        wanted = _not_above(step.target)
        self._step(f"{_name(step.segment, kind)}, {plural(step.entries, 'entry')}; the last one {wanted}")
        for probe in step.probes:
            if is_time:
                verdict = "after, so before it" if probe.is_above else "not after, so here or after it"
            else:
                verdict = "above, so before it" if probe.is_above else "not above, so here or after it"
            self._line(f"entry {probe.number + 1} of {step.entries}: {_entry_text(probe.entry)}: {verdict}")
            self._object(kind="probe", index=index, entry=probe.number, **_entry_fields(probe.entry))
        found = step.found
        if isinstance(found, TimeIndexEntry):
            what = "no entry" if step.number is None else f"entry {step.number + 1}: {format_time(found.timestamp_ms)}"
            self._line(f"{what}: nothing before offset {found.offset} is that late", is_chosen=True)
        else:
            from_start = "no entry: from the start of the log"
            what = from_start if step.number is None else f"entry {step.number + 1}: offset {found.offset}"
            self._line(f"{what}, position {found.position}", is_chosen=True)
        file = step.segment.path(kind)
        self._object(kind="index_entry", index=index, file=file, entry=step.number, **_entry_fields(found))

    def _show_scan(self, step: SegmentScanned) -> None:
        segment = step.segment
        self._line(
            f"{_name(segment, FileKind.LOG)}: {plural(step.batches, 'batch')}, {segment.size_bytes:,} bytes read",
            is_chosen=step.is_found,
        )
        self._object(
            kind="scan",
            file=segment.path(FileKind.LOG),
            batches=step.batches,
            bytes=segment.size_bytes,
            found=step.is_found,
        )

    def _show_batches(self, segment: Segment, batches: NDArray[Any], before: int, *, is_found: bool) -> None:
        path = json.dumps(segment.path(FileKind.LOG))
        table = batch_table(self._output, indent=len(_INDENT))
        self._line(table.header())
        if before:
            self._line(f"... {plural(before, 'batch')} before")
        for number, batch in enumerate(headers(batches), start=1):
            if self._output.as_json:
                self._output.line(batch_object(batch, path))
            else:
                self._line(fitted_line(batch, table), is_chosen=is_found and number == len(batches))

    def _show_record(self, found: DecodedRecords, wanted: int | None) -> None:
        offset = int(found.columns.offset[0])
        batch = found.batches[found.batch_row[0]]
        place = int(offset - batch["base_offset"]) if batch["base_offset"] >= 0 else None
        self._step("the record" if place is None else f"the record, offset {place} of its batch")
        is_control = bool(batch["magic"] >= 2 and batch["attributes"] & CONTROL_BIT)
        prefix = f'"kind":"record","topic":{json.dumps(self._log.topic)},"partition":{self._log.partition},'.encode()
        decoded = None if is_control else self._decoded
        if decoded is None or not decoded.show(found, json_prefix=prefix, text_prefix=_INDENT):
            rendered = render_json(found, prefix) if self._output.as_json else render_text(found, _INDENT.encode())
            self._output.write(rendered)
        if is_control:
            self._output.note(self._log.folder, "it is a control record: consumers do not see it")
        if wanted is not None and offset != wanted:
            self._output.note(
                self._log.folder, f"offset {wanted} has no record any more, compaction removed it; {offset} is the next"
            )

    def _step(self, title: str) -> None:
        self._steps += 1
        self._output.heading(f"{self._steps}. {title}")

    def _line(self, text: str, *, is_chosen: bool = False) -> None:
        if not self._output.as_json and not self._output.quiet:
            self._output.line(f"   {'>' if is_chosen else ' '} {text}")

    def _object(self, **fields: Any) -> None:
        if self._output.as_json:
            self._output.object(fields)


def _name(segment: Segment, kind: FileKind) -> str:
    return printable(segment.path(kind).rpartition("/")[2])


def _words(target: AtOffset | SinceTime) -> str:
    return f"offset {target.offset}" if isinstance(target, AtOffset) else format_time(target.timestamp_ms)


def _not_above(target: AtOffset | SinceTime) -> str:
    if isinstance(target, AtOffset):
        return f"not above {target.offset}"
    return f"not after {format_time(target.timestamp_ms)}"


def _nothing(target: Target) -> str:
    match target:
        case AtOffset(offset):
            return f"there is no record from offset {offset} on"
        case SinceTime(timestamp_ms):
            return f"there is no record of {format_time(timestamp_ms)} or later"
        case _:
            return "there is no record with this key"


def _entry_text(entry: OffsetIndexEntry | TimeIndexEntry) -> str:
    if isinstance(entry, TimeIndexEntry):
        return f"{format_time(entry.timestamp_ms)} at offset {entry.offset}"
    return f"offset {entry.offset} at position {entry.position}"


def _entry_fields(entry: OffsetIndexEntry | TimeIndexEntry) -> dict[str, int]:
    if isinstance(entry, TimeIndexEntry):
        return {"timestamp": entry.timestamp_ms, "offset": entry.offset}
    return {"offset": entry.offset, "position": entry.position}
