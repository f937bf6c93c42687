"""Dumps everything but records: indexes, producer snapshots, checkpoints and properties.

These files are small, so each is read whole, and without numpy, so that the dump of an index is immediate. Corrupt
entries are findings; the others are still shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from duralog.cli.dump.request import DumpRequest
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import Columns, plural
from duralog.cli.voice.tables import Table as FittedTable
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.errors import CorruptRecord
from duralog.format.checkpoints import decode_leader_epoch_checkpoint, decode_offset_checkpoint
from duralog.format.index_entries import (
    OnCorrupt,
    decode_offset_index,
    decode_time_index,
    decode_transaction_index,
    used_bytes,
)
from duralog.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from duralog.format.producer_snapshot import decode_producer_snapshot
from duralog.format.properties import (
    decode_json_object,
    decode_meta_properties,
    decode_partition_metadata,
)
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.file_system import LARGEST_SMALL_FILE_BYTES
from duralog.storage.disk.found_files import Content, FoundFile

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """How to show the entries of one kind of file."""

    title: str
    kind: str
    columns: Columns
    rows: Callable[[bytes, int, OnCorrupt], Iterable[Row]]
    """From the bytes of the file and the offset in its name."""


def _offset_index_rows(data: bytes, base_offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:
    for entry in decode_offset_index(data, base_offset, on_corrupt=on_corrupt):
        yield {"offset": entry.offset, "position": entry.position}


def _time_index_rows(data: bytes, base_offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:
    for entry in decode_time_index(data, base_offset, on_corrupt=on_corrupt):
        yield {"timestamp": entry.timestamp_ms, "offset": entry.offset}


def _transaction_index_rows(data: bytes, base_offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:
    for entry in decode_transaction_index(data, base_offset, on_corrupt=on_corrupt):
        yield asdict(entry)


def _producer_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    for entry in decode_producer_snapshot(data):
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
            "last_timestamp": entry.timestamp_ms,
            "first_sequence": entry.first_sequence,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.offset_delta,
        }


def _checkpoint_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    for entry in sorted(decode_offset_checkpoint(data), key=lambda entry: (entry.topic, entry.partition)):
        yield asdict(entry)


def _leader_epoch_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    for entry in decode_leader_epoch_checkpoint(data):
        yield asdict(entry)


def _partition_metadata_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    yield {"topic_id": decode_partition_metadata(data)}


def _meta_properties_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    yield asdict(decode_meta_properties(data))


def _json_state_rows(data: bytes, offset: int, on_corrupt: OnCorrupt) -> Iterator[Row]:  # noqa: ARG001
    yield {"content": decode_json_object(data)}


TABLES = {
    Content.OFFSET_INDEX: Table(
        "offset index", "offset_index_entry", {"offset": 12, "position": 12}, _offset_index_rows
    ),
    Content.TIME_INDEX: Table("time index", "time_index_entry", {"timestamp": -24, "offset": 12}, _time_index_rows),
    Content.TRANSACTION_INDEX: Table(
        "transaction index: aborted transactions",
        "aborted_transaction",
        {"producer_id": 12, "first_offset": 12, "last_offset": 12, "last_stable_offset": 12},
        _transaction_index_rows,
    ),
    Content.PRODUCER_SNAPSHOT: Table(
        "producer state",
        "producer",
        {
            "producer_id": 12,
            "producer_epoch": 14,
            "coordinator_epoch": 17,
            "transaction_first_offset": 24,
            "last_timestamp": -24,
            "first_sequence": 14,
            "last_sequence": 13,
            "last_offset": 12,
            "offset_delta": 12,
        },
        _producer_rows,
    ),
    Content.OFFSET_CHECKPOINT: Table(
        "offset checkpoint", "checkpoint_entry", {"topic": -32, "partition": 9, "offset": 12}, _checkpoint_rows
    ),
    Content.LEADER_EPOCHS: Table(
        "leader epochs", "leader_epoch", {"epoch": 10, "start_offset": 12}, _leader_epoch_rows
    ),
    Content.PARTITION_METADATA: Table(
        "partition metadata", "partition_metadata", {"topic_id": -22}, _partition_metadata_rows
    ),
    Content.META_PROPERTIES: Table(
        "log directory",
        "meta_properties",
        {"version": 7, "cluster_id": -22, "node_id": 11, "directory_id": -22},
        _meta_properties_rows,
    ),
    Content.JSON_STATE: Table("state", "state", {"content": -1}, _json_state_rows),
}

_TIMES = ("timestamp", "last_timestamp")
_OFFSETS = ("offset", "last_offset", "start_offset")
_SPARSE = {Content.OFFSET_INDEX: OFFSET_INDEX_ENTRY, Content.TIME_INDEX: TIME_INDEX_ENTRY}


def dump_file(file: FoundFile, request: DumpRequest, output: Output) -> None:
    table = TABLES[file.content]
    with FileSource(file.path) as source:
        data = source.read_all(limit=LARGEST_SMALL_FILE_BYTES)
    output.heading(f"{printable(file.path)}: {table.title}{_named_offset(file)}, {plural(len(data), 'byte')}")
    lines = FittedTable(output, table.columns)
    lines.begin()
    quota = request.quota.fresh()
    shown = 0

    def report(error: CorruptRecord) -> None:
        output.finding(error.in_file(file.path))

    try:
        for row in table.rows(data, file.offset or 0, report):
            if not _is_selected(row, file, request):
                continue
            if not quota.take(1):
                break
            _write_row(row, table, file, lines, output)
            shown += 1
    except CorruptRecord as error:
        report(error)
    lines.end()
    _note_zero_tail(file, data, output)
    if not shown and not output.as_json:
        output.columns("(no entries)")


def _named_offset(file: FoundFile) -> str:
    if file.offset is None:
        return ""
    if file.content is Content.PRODUCER_SNAPSHOT:
        return f" at offset {file.offset}"
    return f", base offset {file.offset}"


def _is_selected(row: Row, file: FoundFile, request: DumpRequest) -> bool:
    """Whether the entry is within the requested offsets and times. Only indexes are filtered."""
    if file.content not in (Content.OFFSET_INDEX, Content.TIME_INDEX, Content.TRANSACTION_INDEX):
        return True
    offset = next(row[name] for name in _OFFSETS if name in row)
    if not request.offsets.start <= offset < request.offsets.end:
        return False
    if "timestamp" not in row:
        return True
    timestamp = row["timestamp"]
    since, until = request.since_ms, request.until_ms
    return (since is None or timestamp >= since) and (until is None or timestamp < until)


def _write_row(row: Row, table: Table, file: FoundFile, lines: FittedTable, output: Output) -> None:
    if output.as_json:
        output.object({"kind": table.kind, "file": file.path, **row})
        return
    lines.row([_text(name, row[name]) for name in table.columns])


def _text(name: str, value: Any) -> str:
    if name in _TIMES:
        return format_time(value)
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value)
    return printable(str(value))


def _note_zero_tail(file: FoundFile, data: bytes, output: Output) -> None:
    layout = _SPARSE.get(file.content)
    if layout is None:
        return
    unused = len(data) - len(data) % layout.size - used_bytes(data, layout)
    if unused:
        output.note(
            file.path,
            f"the last {unused:,} bytes are zeros: room for more entries, not yet trimmed",
            zero_bytes=unused,
        )
