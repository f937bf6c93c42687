"""Shows records of `duralog consume`: a line for people, values for pipes, a format, or JSON as in `duralog dump`.

`duralog produce --from-json` reads the same JSON, so that a topic can be piped from one to the other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from duralog.cli.records.record_format import RecordFormat
from duralog.cli.voice.output import Output
from duralog.cli.voice.times import format_time
from duralog.config.error_text import printable
from duralog.errors import InvalidRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Header, Record

_INT64_MAX = 2**63 - 1
_PLACE_NAMES = ("topic", "partition", "offset", "timestamp", "timestamp_type", "sequence")
_NAMES = frozenset((*_PLACE_NAMES, "headers", "key", "key_base64", "value", "value_base64"))


class Style(Enum):
    LINES = "lines"
    VALUES = "values"
    JSON = "json"


class ShownRecords:
    def __init__(self, output: Output, style: Style | RecordFormat) -> None:
        self._output = output
        self._style = style
        self.count = 0

    def show(self, topic: str, partition: int, record: Record) -> None:
        self.count += 1
        if isinstance(self._style, RecordFormat):
            self._output.write(self._style.render(topic, partition, record))
        elif self._style is Style.JSON:
            self._output.object(to_json(topic, partition, record))
        elif self._style is Style.VALUES:
            self._output.write((record.value or b"") + b"\n")
        else:
            self._output.line(_line(topic, partition, record))


def to_json(topic: str, partition: int, record: Record) -> dict[str, Any]:
    headers = [{"key": name, **_bytes_field("value", value)} for name, value in record.headers]
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
        "timestamp_type": record.timestamp_type.label,
        **_bytes_field("key", record.key),
        **_bytes_field("value", record.value),
        **({"headers": headers} if headers else {}),
    }


def _bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def from_json(line: str) -> tuple[int | None, Record]:
    """The partition of a record, if given, and the record. Raises `InvalidRecord`."""
    try:
        return _record_of(json.loads(line))
    except InvalidRecord:
        raise
    except ValueError as error:
        raise InvalidRecord(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidRecord("not JSON that can be read: it is nested too deeply") from None


def _record_of(fields: object) -> tuple[int | None, Record]:
    if not isinstance(fields, dict):
        raise InvalidRecord("not a JSON object with key, value, headers, timestamp or partition")
    if strange := sorted(set(fields) - _NAMES):
        raise InvalidRecord(f"unknown field {strange[0]!r}: a record has {', '.join(sorted(_NAMES))}")
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise InvalidRecord('headers: expected a list of {"key": ..., "value": ...}')
    record = Record(
        key=_bytes_of(fields, "key"),
        value=_bytes_of(fields, "value"),
        timestamp_ms=_number(fields, "timestamp", NO_TIMESTAMP),
        headers=[_header_of(header) for header in headers],
    )
    partition = _number(fields, "partition", -1)
    return None if partition < 0 else partition, record


def _header_of(header: object) -> Header:
    if not isinstance(header, dict) or not isinstance(header.get("key"), str):
        raise InvalidRecord('headers: expected a list of {"key": ..., "value": ...}')
    name = header["key"]
    if any("\ud800" <= char <= "\udfff" for char in name):
        raise InvalidRecord(f"headers: {json.dumps(name)} has half a character")
    return name, _bytes_of(header, "value")


def _bytes_of(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise InvalidRecord(f"{name}_base64: not base64") from None
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode("utf-8", "surrogatepass")
    # A JSON document as the value is kept as JSON, with lone surrogates as escapes.
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _number(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _INT64_MAX:
        raise InvalidRecord(f"{name}: expected a number from 0 on, found {json.dumps(value)}")
    return value


def _line(topic: str, partition: int, record: Record) -> str:
    headers = "".join(f"  {printable(name)}={_text(value)}" for name, value in record.headers)
    return (
        f"{printable(topic)}-{partition}  {record.offset}  {format_time(record.timestamp_ms)}"
        f"  {_text(record.key)}  {_text(record.value)}{headers}"
    )


def _text(data: bytes | None) -> str:
    """A quoted string as in JSON, `null`, or hex for bytes that are not text."""
    if data is None:
        return "null"
    try:
        text = json.dumps(data.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    # JSON allows characters that move the cursor of a terminal or reverse its text.
    return text if text.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
