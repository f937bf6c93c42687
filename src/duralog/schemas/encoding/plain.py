"""Values as Kafka's own serializers write them: text, big-endian numbers, UUIDs as text, bytes."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any
from uuid import UUID

from duralog.errors import InvalidRecord

_NUMBERS = {"short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d"}
_BOOLEANS = {"true": True, "false": False}


def encode_plain(format_: str, value: Any) -> bytes:
    """`value` is text, a number or a boolean. Raises `InvalidRecord`."""
    try:
        encoded = _encoded(format_, value)
    except (ValueError, binascii.Error, struct.error, OverflowError):
        encoded = None
    if encoded is None:
        shown = json.dumps(value, ensure_ascii=False)
        raise InvalidRecord(f"expected {_WORDS.get(format_, format_)}, found {shown[:60]}")
    return encoded


def _encoded(format_: str, value: Any) -> bytes | None:
    if format_ == "bytes":
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    if format_ == "string":
        return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()
    if format_ == "uuid":
        return str(UUID(value)).encode() if isinstance(value, str) and len(value) == 36 else None
    if format_ == "boolean":
        found = _BOOLEANS.get(value) if isinstance(value, str) else value
        return bytes([found]) if isinstance(found, bool) else None
    if isinstance(value, bool):
        return None
    if format_ in ("float", "double"):
        return struct.pack(_NUMBERS[format_], float(value))
    return struct.pack(_NUMBERS[format_], int(value) if isinstance(value, str) else value)


_WORDS = {
    "bytes": "base64",
    "uuid": "a UUID",
    "boolean": "true or false",
    "short": "a whole number of 16 bits",
    "integer": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "float": "a number",
    "double": "a number",
}
