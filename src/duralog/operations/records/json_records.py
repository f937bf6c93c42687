"""Records as JSON: what `duralog consume`, `dump` and `lookup` print, and what `produce --from-json` reads."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duralog.columnar.plain_json import plain_json
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record

if TYPE_CHECKING:
    from duralog.operations.records.decoded import DecodedPayload, DecodedRecord


def to_json(topic: str, partition: int, record: Record) -> dict[str, Any]:
    headers = [{"key": name, **bytes_field("value", value)} for name, value in record.headers]
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
        "timestamp_type": record.timestamp_type.label,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        **({"headers": headers} if headers else {}),
    }


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def decoded_parts(found: DecodedRecord) -> dict[str, DecodedPayload]:
    """What was decoded of a record, by `key` and `value`."""
    return {name: part for name, part in (("key", found.key), ("value", found.value)) if part is not None}


def with_decoded(fields: dict[str, Any], decoded: Mapping[str, DecodedPayload]) -> dict[str, Any]:
    """A record as JSON with decoded values in place of bytes, and the schema's name, or why they did not decode."""
    for name, part in decoded.items():
        is_null = fields.get(name) is None and f"{name}_base64" not in fields
        if part.reason is None and not is_null:
            fields.pop(f"{name}_base64", None)
            fields[name] = plain_json(part.value)
        if part.schema is not None:
            fields[f"{name}_schema"] = part.schema
        if part.reason is not None:
            fields[f"{name}_error"] = part.reason
    return fields
