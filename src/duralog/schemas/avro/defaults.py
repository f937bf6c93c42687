"""The defaults of a reader's fields, as Avro bytes. Decoding them is then the same as decoding what was written."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from duralog.errors import SchemaError
from duralog.schemas.avro.schema import (
    NO_DEFAULT,
    UNITS_IN_A_DAY,
    Array,
    AvroType,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
    describe,
)

_RANGES = {"int": 1 << 31, "long": 1 << 63}
_MAX_DEPTH = 100


def encode_default(one: AvroType, value: Any, path: str) -> bytes:
    """`value` as JSON has it. Raises `SchemaError` if it is not a value of the type."""
    encoded = _encode(one, value, 0)
    if encoded is None:
        raise SchemaError(f"field {path}: the default {value!r} is not a value of its type, {describe(one)}")
    return encoded


def _encode(one: AvroType, value: Any, depth: int) -> bytes | None:
    """None if the value does not fit."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(one, Primitive):
        return _primitive(one, value)
    if isinstance(one, Fixed):
        data = _latin(value)
        return data if data is not None and len(data) == one.size and _is_decimal(one.logical, data) else None
    if isinstance(one, Enum):
        return varint(one.symbols.index(value)) if value in one.symbols else None
    if isinstance(one, Union):
        # The first branch, by Avro's specification up to 1.11; any, since 1.12.
        for number, branch in enumerate(one.branches):
            encoded = _encode(branch, value, depth + 1)
            if encoded is not None:
                return varint(number) + encoded
        return None
    if isinstance(one, Array):
        if not isinstance(value, list):
            return None
        return _block(len(value), [_encode(one.items, item, depth + 1) for item in value])
    if not isinstance(value, dict):
        return None
    if isinstance(one, Map):
        parts = []
        for key, item in value.items():
            parts += [_primitive(Primitive("string"), key), _encode(one.values, item, depth + 1)]
        return _block(len(value), parts)
    return _record(one, value, depth)


def _record(record: Record, value: dict[str, Any], depth: int) -> bytes | None:
    parts = []
    for one in record.fields:
        inner = value.get(one.name, one.default)
        parts.append(None if inner is NO_DEFAULT else _encode(one.type, inner, depth + 1))
    return _joined(parts)


def _primitive(one: Primitive, value: Any) -> bytes | None:
    kind = one.kind
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "null":
        return b"" if value is None else None
    if kind == "boolean":
        return bytes([value]) if isinstance(value, bool) else None
    if kind in _RANGES:
        lowest, highest = -_RANGES[kind], _RANGES[kind]
        if one.logical is not None and one.logical.name in UNITS_IN_A_DAY:
            lowest, highest = 0, UNITS_IN_A_DAY[one.logical.name]
        is_whole = is_number and value == value // 1 and lowest <= value < highest
        return varint(int(value)) if is_whole else None
    if kind == "float":
        try:
            return struct.pack("<f", value) if is_number else None
        except OverflowError:
            return None
    if kind == "double":
        return struct.pack("<d", value) if is_number else None
    if kind == "bytes":
        data = _latin(value)
        return None if data is None or not _is_decimal(one.logical, data) else varint(len(data)) + data
    if not isinstance(value, str):
        return None
    try:
        text = value.encode()
    except UnicodeEncodeError:
        return None
    return varint(len(text)) + text


def _latin(value: Any) -> bytes | None:
    """Bytes in JSON: a character for each."""
    try:
        return value.encode("latin-1") if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _is_decimal(logical: Logical | None, data: bytes) -> bool:
    if logical is None or logical.name != "decimal":
        return True
    return len(data) > 0 and abs(int.from_bytes(data, "big", signed=True)) < 10**logical.precision


def _block(count: int, parts: Iterable[bytes | None]) -> bytes | None:
    joined = _joined(parts)
    if joined is None or count == 0:
        return joined if joined is None else b"\x00"
    return varint(count) + joined + b"\x00"


def _joined(parts: Iterable[bytes | None]) -> bytes | None:
    found = list(parts)
    return None if None in found else b"".join(part for part in found if part is not None)


def varint(number: int) -> bytes:
    """An int64, zigzag."""
    rest = (number << 1) ^ (number >> 63)
    done = bytearray()
    while rest >= 0x80:
        done.append(rest & 0x7F | 0x80)
        rest >>= 7
    done.append(rest)
    return bytes(done)
