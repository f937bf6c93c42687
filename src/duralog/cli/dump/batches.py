"""Lines and JSON objects of batches: every field of the header, without decoding records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.request import DumpRequest
from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import Table, plural
from duralog.columnar.pieces import Piece
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.format.compression import Codec
from duralog.format.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from duralog.format.record import TimestampType
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.checks.findings import OnFinding
from duralog.storage.checks.log import report_wrong_checksums
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.found_files import Content, FoundFile

_INT32_MAX = 2**31 - 1
_KNOWN_CODECS = {int(codec): codec.label for codec in Codec}
CODEC_LABELS = tuple(_KNOWN_CODECS.get(number, f"unknown-{number}") for number in range(CODEC_MASK + 1))
_TIME = {TimestampType.NONE: "-", TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "append"}
_VALID = {1: "ok", 0: "BAD", -1: "-"}
_CRC_OK = {1: "true", 0: "false", -1: "null"}

COLUMNS = {
    "base_offset": 11,
    "last_offset": 11,
    "records": 7,
    "position": 10,
    "size": 7,
    "max_timestamp": -24,
    "time": -6,
    "codec": -6,
    "magic": 5,
    "epoch": 5,
    "producer": 8,
    "sequence": 9,
    "crc": -8,
    "valid": -5,
    "flags": -5,
}
LEAST = ("crc", "epoch", "time", "magic", "sequence", "producer", "valid", "position", "size", "max_timestamp")
"""Dropped first on a narrow terminal. A wrong checksum has a line of its own."""


class Header(NamedTuple):
    """A row of the batch table as plain numbers."""

    position: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    size: int
    leader_epoch: int
    base_sequence: int
    record_count: int
    crc: int
    attributes: int
    producer_epoch: int
    magic: int
    crc_ok: int

    @property
    def is_wrapper(self) -> bool:
        """A compressed v0 or v1 message, whose first offset and count are only known once it is decompressed."""
        return self.magic < 2 and self.record_count < 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        last = self.base_sequence + (self.last_offset - self.base_offset)
        return last if last <= _INT32_MAX else last - _INT32_MAX - 1

    def has(self, bit: int) -> bool:
        return self.magic >= 2 and self.attributes & bit != 0


assert Header._fields == BATCH_DTYPE.names


def headers(batches: NDArray[Any]) -> Iterator[Header]:
    return map(Header._make, batches.tolist())


def batch_line(batch: Header) -> str:
    """The batch in the order of `COLUMNS`. No column holds a space; `-` stands for none."""
    first, count = ("-", "-") if batch.is_wrapper else (batch.base_offset, batch.record_count)
    epoch = batch.leader_epoch if batch.magic >= 2 else "-"
    producer = f"{batch.producer_id}:{batch.producer_epoch}" if batch.producer_id >= 0 else "-"
    sequence = f"{batch.base_sequence}..{batch.last_sequence}" if batch.base_sequence != NO_SEQUENCE else "-"
    codec = CODEC_LABELS[batch.attributes & CODEC_MASK]
    valid = _VALID[batch.crc_ok]
    time = _TIME[batch.timestamp_type]
    flags = []
    if batch.has(TRANSACTIONAL_BIT):
        flags.append("txn")
    if batch.has(CONTROL_BIT):
        flags.append("control")
    if batch.has(DELETE_HORIZON_BIT):
        flags.append(f"delete_horizon={format_time(batch.base_timestamp)}")
    return (
        f"{first:>11}  {batch.last_offset:>11}  {count:>7}  {batch.position:>10}  {batch.size:>7}  "
        f"{format_time(batch.max_timestamp):<24}  {time:<6}  {codec:<6}  {batch.magic:>5}  {epoch:>5}  "
        f"{producer:>8}  {sequence:>9}  {batch.crc:08x}  {valid:<5}  {','.join(flags)}"
    ).rstrip()


def batch_table(output: Output, *, indent: int = 0) -> Table:
    return Table(output, COLUMNS, cut=(), least=LEAST, indent=indent)


def fitted_line(batch: Header, table: Table) -> str:
    """The same, with the columns that fit."""
    line = batch_line(batch)
    if not table.left_out:
        return line
    cells = line.split()
    return table.line([*cells, *[""] * (len(COLUMNS) - len(cells))])


def batch_object(batch: Header, file: str) -> str:
    """The batch as a line of JSON. `file` is already JSON."""
    first, count = ("null", "null") if batch.is_wrapper else (batch.base_offset, batch.record_count)
    horizon = batch.base_timestamp if batch.has(DELETE_HORIZON_BIT) else "null"
    return (
        f'{{"kind":"batch","file":{file},"position":{batch.position},"size":{batch.size},"magic":{batch.magic},'
        f'"base_offset":{first},"last_offset":{batch.last_offset},"record_count":{count},'
        f'"base_timestamp":{_time(batch.base_timestamp)},"max_timestamp":{_time(batch.max_timestamp)},"timestamp_type":"{batch.timestamp_type.label}",'
        f'"codec":"{CODEC_LABELS[batch.attributes & CODEC_MASK]}","leader_epoch":{batch.leader_epoch},'
        f'"producer_id":{batch.producer_id},"producer_epoch":{batch.producer_epoch},'
        f'"base_sequence":{batch.base_sequence},"last_sequence":{batch.last_sequence},'
        f'"transactional":{_json(batch.has(TRANSACTIONAL_BIT))},"control":{_json(batch.has(CONTROL_BIT))},'
        f'"delete_horizon":{horizon},"crc":{batch.crc},"crc_ok":{_CRC_OK[batch.crc_ok]}}}'
    )


def _time(milliseconds: int) -> int | str:
    return "null" if milliseconds == NO_TIMESTAMP else milliseconds


def _json(value: bool) -> str:
    return "true" if value else "false"


class BatchSink:
    """Shows a line or an object for each batch."""

    reports_crc = True

    def __init__(self, request: DumpRequest, output: Output) -> None:
        self._quota = request.quota
        self._output = output

    def begin(self, file: FoundFile, source: FileSource, report: OnFinding) -> None:
        self._report = report
        self._file = json.dumps(file.path)
        self._output.heading(log_heading(file, source))
        self._table = batch_table(self._output)
        self._table.begin()

    def show(self, piece: Piece, rows: NDArray[np.intp]) -> int:
        rows = rows[: self._quota.take(len(rows))]
        records = 0
        for row, batch in zip(rows.tolist(), headers(piece.batches[rows]), strict=True):
            records += max(batch.record_count, 0)
            self._output.line(self._line(batch))
            if not batch.crc_ok:
                report_wrong_checksums(piece, self._report, np.array([row], np.intp))
        return records

    def _line(self, batch: Header) -> str:
        return batch_object(batch, self._file) if self._output.as_json else fitted_line(batch, self._table)

    def end(self, log_end: int, *, is_sound: bool) -> None:  # noqa: ARG002
        self._table.end()


def log_heading(file: FoundFile, source: FileSource) -> str:
    if file.content is Content.METADATA_SNAPSHOT:
        what = "metadata snapshot"
        if file.offset is not None:
            what += f" up to offset {file.offset}, epoch {file.epoch}"
    else:
        what = "log" if file.offset is None else f"log, base offset {file.offset}"
    state = f" ({file.state.value.lstrip('.')})" if file.state.value else ""
    return f"{printable(file.path)}: {what}{state}, {plural(source.size, 'byte')}"
