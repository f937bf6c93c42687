"""Shows records of `duralog consume`: a line for people, values for pipes, a format, or JSON as in `duralog dump`.

`duralog produce --from-json` reads the same JSON, so that a topic can be piped from one to the other.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from duralog.cli.records.record_format import RecordFormat
from duralog.cli.voice.output import Output
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.errors import InvalidRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Header, Record
from duralog.operations.records.json_records import decoded_parts, to_json, with_decoded

if TYPE_CHECKING:
    from duralog.operations.records.decoded import DecodedPayload, RecordDecoder
    from duralog.operations.records.encoded import Encoders
    from duralog.schemas.encoding.payload_encoder import PayloadEncoder

_INT64_MAX = 2**63 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLACE_NAMES = ("topic", "partition", "offset", "timestamp", "timestamp_type", "sequence")
_OF_PARTS = ("", "_base64", "_schema", "_error")
_NAMES = frozenset((*_PLACE_NAMES, "headers", *(f"{part}{name}" for part in ("key", "value") for name in _OF_PARTS)))


class Style(Enum):
    LINES = "lines"
    VALUES = "values"
    JSON = "json"


class ShownRecords:
    def __init__(self, output: Output, style: Style | RecordFormat, decoder: RecordDecoder | None = None) -> None:
        self._output = output
        self._style = style
        self._decoder = decoder
        self.count = 0

    def show(self, topic: str, partition: int, record: Record) -> None:
        self.count += 1
        decoded: Mapping[str, DecodedPayload] = {}
        if self._decoder is not None:
            (found,) = self._decoder.decode(topic, partition, [record])
            decoded = decoded_parts(found)
        if isinstance(self._style, RecordFormat):
            self._output.write(self._style.render(topic, partition, _with_text(record, decoded)))
        elif self._style is Style.JSON:
            self._output.object(with_decoded(to_json(topic, partition, record), decoded))
        elif self._style is Style.VALUES:
            self._output.write((_with_text(record, decoded).value or b"") + b"\n")
        else:
            self._output.line(_line(topic, partition, record, decoded))


def _shows(data: bytes | None, part: DecodedPayload | None) -> bool:
    """Whether the decoded value stands for the bytes."""
    return part is not None and part.reason is None and data is not None


def _with_text(record: Record, decoded: Mapping[str, DecodedPayload]) -> Record:
    """The record with decoded keys and values as JSON; what did not decode stays as it is."""
    if not decoded:
        return record
    from duralog.columnar.plain_json import json_text

    key, value = record.key, record.value
    if _shows(key, decoded.get("key")):
        key = json_text(decoded["key"].value).encode()
    if _shows(value, decoded.get("value")):
        value = json_text(decoded["value"].value).encode()
    return replace(record, key=key, value=value)


def from_json(line: str, encoders: Encoders | None = None) -> tuple[int | None, Record]:
    """The partition of a record, if given, and the record. Raises `InvalidRecord`.

    With encoders, keys and values are encoded; what `duralog consume` could not decode is taken as the bytes it was.
    """
    try:
        return _record_of(_parsed(line, encoders), encoders)
    except InvalidRecord:
        raise
    except ValueError as error:
        raise InvalidRecord(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidRecord("not JSON that can be read: it is nested too deeply") from None


def _parsed(line: str, encoders: Encoders | None) -> Any:
    if encoders is None:
        # A value that is a document keeps all digits of its numbers.
        return json.loads(line, parse_float=Decimal, parse_constant=_no_number)
    from duralog.schemas.exact_numbers import parse_json

    return parse_json(line)


def _no_number(name: str) -> Any:
    raise InvalidRecord(f"not JSON: {name} is not a number")


def _record_of(fields: object, encoders: Encoders | None) -> tuple[int | None, Record]:
    if not isinstance(fields, dict):
        raise InvalidRecord("not a JSON object with key, value, headers, timestamp or partition")
    if strange := sorted(set(fields) - _NAMES):
        raise InvalidRecord(f"unknown field {strange[0]!r}: a record has {', '.join(sorted(_NAMES))}")
    headers = fields.get("headers") or []
    if not isinstance(headers, list):
        raise InvalidRecord('headers: expected a list of {"key": ..., "value": ...}')
    record = Record(
        key=_part_of(fields, "key", None if encoders is None else encoders.key),
        value=_part_of(fields, "value", None if encoders is None else encoders.value),
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


def _part_of(fields: Mapping[str, Any], name: str, encoder: PayloadEncoder | None) -> bytes | None:
    is_bytes = f"{name}_base64" in fields or f"{name}_error" in fields
    if encoder is None or is_bytes or fields.get(name) is None:
        return _bytes_of(fields, name)
    return encoder.encode(fields[name])


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
    from duralog.columnar.plain_json import searched_json

    # A JSON document as the value is kept as JSON, with lone surrogates as escapes.
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", searched_json(value)).encode()


def _number(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _INT64_MAX:
        raise InvalidRecord(f"{name}: expected a number from 0 on, found {json.dumps(value, default=str)}")
    return value


def _line(topic: str, partition: int, record: Record, decoded: Mapping[str, DecodedPayload]) -> str:
    headers = "".join(f"  {printable(name)}={payload_text(value)}" for name, value in record.headers)
    key, value = (_part_text(getattr(record, name), decoded.get(name)) for name in ("key", "value"))
    return (
        f"{printable(topic)}-{partition}  {record.offset}  {format_time(record.timestamp_ms)}  {key}  {value}{headers}"
    )


def _part_text(data: bytes | None, part: DecodedPayload | None) -> str:
    if part is None or data is None:
        return payload_text(data)
    if part.reason is not None:
        return f"{payload_text(data)} ({printable(part.reason)})"
    from duralog.columnar.plain_json import json_text

    return printable(json_text(part.value))


def payload_text(data: bytes | None) -> str:
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
