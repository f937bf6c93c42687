"""Records as a file that is written while it is sent: JSON lines, CSV or Parquet. Memory is bounded by a row group.

JSON lines have the fields of `duralog consume --json`: bytes that are not UTF-8 are base64 in a field `key_base64` or
`value_base64`. Parquet has the schema of `read_arrow`.

CSV has a column after each of key and value that names its encoding: `utf-8`, `base64` for bytes that are not UTF-8, or
nothing for null. A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break as a formula:
such a cell gets a quote `'` before it, and the encoding says so (`quoted utf-8`). Headers are a JSON list.

With a decoder, JSON lines have decoded keys and values as JSON, with `key_schema`, or `key_error` for what did not
decode; CSV has a column for each of them; Parquet has typed columns, and `_corrupt` for what did not decode.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from duralog.columnar.export import times_as_text
from duralog.columnar.plain_json import json_text
from duralog.columnar.schema import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    RECORD_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
)
from duralog.format.record import TimestampType
from duralog.operations.records.decoded import DecodedPayload, TopicDecoder
from duralog.operations.records.json_records import bytes_field, decoded_parts, with_decoded
from duralog.schemas.typed_columns import LeftOut, TypedColumns

_ROW_GROUP_BYTES = 16 << 20
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LABELS = {int(each): each.label for each in TimestampType}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
Decoded = Mapping[str, DecodedPayload]
"""The decoded parts of a record: key, value, or both."""
_CSV_HEAD = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)


class RecordFile(ABC):
    media_type: str

    def __init__(self, decoder: TopicDecoder | None = None) -> None:
        """With a decoder, keys and values are decoded."""
        self._decoder = decoder if decoder is not None and decoder.columns else None

    def _decoded(self, records: pa.RecordBatch) -> Iterator[Decoded]:
        if self._decoder is None:
            return iter([{}] * records.num_rows)
        return map(decoded_parts, self._decoder.decode(records, by_writer=True))

    @abstractmethod
    def feed(self, records: pa.RecordBatch) -> bytes:
        """Add records of `RECORD_SCHEMA`. Returns the next complete part of the file."""

    def finish(self) -> bytes:
        """The rest of the file."""
        return b""


class JsonLines(RecordFile):
    media_type = "application/x-ndjson"

    def feed(self, records: pa.RecordBatch) -> bytes:
        found = zip(_rows(records, _milliseconds), self._decoded(records), strict=True)
        lines = [_dumps(with_decoded(_json_row(row), decoded)) for row, decoded in found]
        return "".join(f"{line}\n" for line in lines).encode()


class Csv(RecordFile):
    media_type = "text/csv; charset=utf-8"

    def __init__(self, decoder: TopicDecoder | None = None) -> None:
        super().__init__(decoder)
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text)
        names = () if self._decoder is None else tuple(self._decoder.decoders)
        more = [f"{name}_{what}" for name in names for what in ("decoded", "schema", "error")]
        self._writer.writerow((*_CSV_HEAD, *more))

    def feed(self, records: pa.RecordBatch) -> bytes:
        found = zip(_rows(records, times_as_text), self._decoded(records), strict=True)
        self._writer.writerows((*_csv_row(row), *_csv_decoded(row, decoded)) for row, decoded in found)
        return self.finish()

    def finish(self) -> bytes:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode()


class Parquet(RecordFile):
    media_type = "application/vnd.apache.parquet"

    def __init__(self, decoder: TopicDecoder | None = None) -> None:
        super().__init__(decoder)
        columns = () if self._decoder is None else self._decoder.columns
        self._typed = TypedColumns(tuple(each for typed in columns for each in typed.decoders)) if columns else None
        self._left_out = LeftOut()
        self._schema = RECORD_SCHEMA if self._typed is None else self._typed.schema(None)
        self._sink = _Sink()
        # A dictionary pays for topic and partition; keys and values are rarely repeated enough.
        repeated = ["topic", "partition", "timestamp_type"]
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd", use_dictionary=repeated)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    def feed(self, records: pa.RecordBatch) -> bytes:
        if self._typed is not None:
            records = self._typed.apply(records, self._schema, self._left_out)
        self._waiting.append(records)
        self._waiting_bytes += records.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write()
        return self._sink.drained()

    def finish(self) -> bytes:
        if self._waiting:
            self._write()
        self._writer.close()
        if self._decoder is not None:
            self._left_out.log(self._decoder.topic)
        return self._sink.drained()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes = [], 0


FILES: Mapping[str, type[RecordFile]] = {"jsonl": JsonLines, "csv": Csv, "parquet": Parquet}
"""By the extension of their names."""


class _Sink(io.RawIOBase):
    """Buffers the output of a writer, to be fetched piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def drained(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


class _Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    time: Any
    type_: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[dict[str, Any]]


def _rows(records: pa.RecordBatch, times: Callable[[pa.Array], pa.Array]) -> Iterator[_Row]:
    headers = records.column(HEADERS)
    columns = (
        records.column(TOPIC).to_pylist(),
        records.column(PARTITION).to_pylist(),
        records.column(OFFSET).to_pylist(),
        times(records.column(TIMESTAMP)).to_pylist(),
        map(_LABELS.__getitem__, records.column(TIMESTAMP_TYPE).to_pylist()),
        records.column(KEY).to_pylist(),
        records.column(VALUE).to_pylist(),
        headers.to_pylist() if len(headers.flatten()) else [()] * records.num_rows,
    )
    return map(_Row, *columns)


def _milliseconds(times: pa.Array) -> pa.Array:
    return times.cast(pa.int64())


def _json_row(row: _Row) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "timestamp": row.time,
        "timestamp_type": row.type_,
        **bytes_field("key", row.key),
        **bytes_field("value", row.value),
        "headers": [_json_header(each) for each in row.headers],
    }


def _json_header(header: dict[str, Any]) -> dict[str, str | None]:
    return {"key": header["key"], **bytes_field("value", header["value"])}


def _csv_row(row: _Row) -> tuple[str | int, ...]:
    headers = [_json_header(each) for each in row.headers]
    return (
        guarded(row.topic),
        row.partition,
        row.offset,
        guarded(row.time or ""),
        row.type_,
        *_csv_bytes(row.key),
        *_csv_bytes(row.value),
        _dumps(headers) if headers else "[]",
    )


def _csv_decoded(row: _Row, decoded: Decoded) -> Iterator[str]:
    for name, payload in decoded.items():
        if payload.reason is not None or getattr(row, name) is None:
            yield ""
        else:
            text = payload.value if isinstance(payload.value, str) else json_text(payload.value)
            yield guarded(text)
        yield guarded(payload.schema or "")
        yield guarded(payload.reason or "")


def _csv_bytes(data: bytes | None) -> tuple[str, str]:
    """The cell, and its encoding."""
    if data is None:
        return "", ""
    try:
        text, encoding = data.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(data).decode(), "base64"
    cell = guarded(text)
    return cell, encoding if cell == text else f"quoted {encoding}"


def guarded(text: str) -> str:
    """A cell that no spreadsheet treats as a formula."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
