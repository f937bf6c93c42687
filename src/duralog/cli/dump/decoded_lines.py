"""Lines and JSON objects of records whose keys and values are decoded, for `duralog dump` and `duralog lookup`.

    | offset 5  2023-11-14T22:13:20.000Z  key "k1"  value {"id":1} [orders-value version 2 (id 4)]  headers "h"="x"
    | offset 6  2023-11-14T22:13:20.000Z  key "k1"  value 0x000000000900 [unknown schema id 9]

JSON is that of records that are not decoded, with the decoded values in place of bytes, and with `value_schema` and
`value_error`, as in `duralog consume --json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from duralog.cli.records.shown_records import payload_text
from duralog.cli.voice.output import Output
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.plain_json import json_text
from duralog.columnar.render import render_json
from duralog.columnar.schema import HEADERS, KEY, VALUE
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.format.record import Record
from duralog.operations.records.decoded import DecodedPayload, RecordDecoder
from duralog.operations.records.json_records import decoded_parts, with_decoded


class DecodedLines:
    """Of the records of one partition."""

    def __init__(
        self,
        decoder: RecordDecoder,
        topic: str,
        partition: int,
        output: Output,
        *,
        max_field_bytes: int | None = None,
    ) -> None:
        self._decoder = decoder
        self._topic = topic
        self._partition = partition
        self._output = output
        self._max_field_bytes = max_field_bytes

    def show(
        self, records: DecodedRecords, *, json_prefix: bytes, text_prefix: str = "| ", offset_width: int = 0
    ) -> bool:
        """Whether a key or value of these records is decoded. If not, nothing is shown; the decoder has reported why.

        `json_prefix` are the first fields of each object.
        """
        rows = _rows(records)
        decoded = [decoded_parts(found) for found in self._decoder.decode(self._topic, self._partition, rows)]
        if not any(decoded):
            return False
        lines = bytes(render_json(records, json_prefix)).split(b"\n")[:-1]
        for line, row, parts in zip(lines, rows, decoded, strict=True):
            fields = json.loads(line)
            if self._output.as_json:
                self._output.object(with_decoded(fields, parts))
            else:
                sequence = f"sequence {fields['sequence']}  " if "sequence" in fields else ""
                place = f"offset {row.offset:>{offset_width}}  {format_time(row.timestamp_ms)}"
                self._output.line(f"{text_prefix}{place}  {sequence}{self._text(row, parts)}")
        return True

    def _text(self, row: Record, parts: Mapping[str, DecodedPayload]) -> str:
        headers = "".join(f" {payload_text(name.encode())}={payload_text(value)}" for name, value in row.headers)
        key, value = self._part(row.key, parts.get(KEY)), self._part(row.value, parts.get(VALUE))
        return f"key {key}  value {value}{'  headers' if headers else ''}{headers}"

    def _part(self, data: bytes | None, part: DecodedPayload | None) -> str:
        """The decoded value, or the bytes, and in brackets the name of the schema, or the reason."""
        if data is None or part is None:
            return self._cut(payload_text(data))
        if part.reason is not None:
            return f"{self._cut(f'0x{data.hex()}')} [{printable(part.reason)}]"
        schema = "" if part.schema is None else f" [{printable(part.schema)}]"
        return f"{self._cut(printable(json_text(part.value)))}{schema}"

    def _cut(self, text: str) -> str:
        most = self._max_field_bytes
        return text if most is None or len(text) <= most else f"{text[:most]}…(+{len(text) - most} characters)"


def _rows(records: DecodedRecords) -> list[Record]:
    batch = records.to_arrow(columns=[KEY, VALUE, HEADERS])
    columns = [batch.column(name).to_pylist() for name in (KEY, VALUE, HEADERS)]
    offsets, times = records.columns.offset.tolist(), records.columns.timestamp.tolist()
    return [
        Record(
            key=key,
            value=value,
            headers=[(header["key"], header["value"]) for header in headers],
            offset=offset,
            timestamp_ms=timestamp_ms,
        )
        for key, value, headers, offset, timestamp_ms in zip(*columns, offsets, times, strict=True)
    ]
