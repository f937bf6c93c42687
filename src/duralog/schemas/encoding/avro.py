"""JSON values as Avro, by a schema. The values are those that `duralog consume` shows.

| Avro | JSON |
|---|---|
| bytes, fixed | base64 |
| decimal | a number, or its text |
| date, time-*, timestamp-* | ISO 8601, or the number that Avro stores |
| uuid | text |
| duration | an object with `months`, `days` and `milliseconds` |
| a union | the value itself; if several branches fit, `{"string": "x"}` as in Avro's JSON, or `{"member1": "x"}` |

A field that is left out gets its default, or null if it may be null. A field that the schema does not have is an error,
and so is whatever does not fit: no value is rounded or cut.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from duralog.errors import InvalidRecord
from duralog.schemas.avro.defaults import encode_default, varint
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
    is_null,
)
from duralog.schemas.exact_numbers import Exact

_MAX_DEPTH = 200
_RANGES = {"int": 1 << 31, "long": 1 << 63}
_NOT_FINITE = {"nan": "nan", "inf": "inf", "-inf": "-inf", "infinity": "inf", "-infinity": "-inf"}
_UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
"""Of a second."""
_FRACTION = re.compile(r"^([^.,]*)[.,](\d{1,9})(.*)$", re.DOTALL)
_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation])
"""More digits than a decimal of Avro may have: a value with more is refused."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def encode_avro(root: AvroType, value: Any) -> bytes:
    """Raises `InvalidRecord`, which names the field, its type and what was found."""
    return _encode(root, value, "", 0)


def _encode(one: AvroType, value: Any, path: str, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise InvalidRecord(f"{_place(path)}nested deeper than {_MAX_DEPTH} levels")
    if isinstance(one, Union):
        return _union(one, value, path, depth)
    if isinstance(one, Record):
        return _record(one, value, path, depth)
    if isinstance(one, Array):
        if not isinstance(value, list):
            raise _unfit(one, value, path)
        return _block([_encode(one.items, each, f"{path}[{at}]", depth + 1) for at, each in enumerate(value)])
    if isinstance(one, Map):
        if not isinstance(value, dict):
            raise _unfit(one, value, path)
        text = Primitive("string")
        return _block(
            [
                _encode(text, key, path, depth + 1) + _encode(one.values, each, f"{path}{{{key}}}", depth + 1)
                for key, each in value.items()
            ]
        )
    encoded = _enum(one, value) if isinstance(one, Enum) else _fixed(one, value) if isinstance(one, Fixed) else None
    if isinstance(one, Primitive):
        encoded = _PRIMITIVES[one.kind](one, value)
    if encoded is None:
        raise _unfit(one, value, path)
    return encoded


def _record(one: Record, value: Any, path: str, depth: int) -> bytes:
    if not isinstance(value, dict):
        raise _unfit(one, value, path)
    names = {field.name for field in one.fields}
    unknown = next((name for name in value if name not in names), None)
    if unknown is not None:
        has = ", ".join(sorted(names)[:20]) or "no fields"
        raise InvalidRecord(f"{_place(path)}{one.name} has no field {unknown!r}; it has {has}")
    parts: list[bytes] = []
    for field in one.fields:
        inner = f"{path}.{field.name}" if path else field.name
        if field.name in value:
            parts.append(_encode(field.type, value[field.name], inner, depth + 1))
        elif field.default is not NO_DEFAULT:
            parts.append(encode_default(field.type, field.default, inner))
        elif isinstance(field.type, Union) and field.type.has_null:
            parts.append(_encode(field.type, None, inner, depth + 1))
        else:
            raise InvalidRecord(f"{_place(inner)}it is missing, and has no default: expected {describe(field.type)}")
    return b"".join(parts)


def _union(one: Union, value: Any, path: str, depth: int) -> bytes:
    # As the column of a union is shown: it would fit into a map, too.
    if (
        len(one.values) > 1
        and isinstance(value, dict)
        and value.keys() == {f"member{n}" for n in range(len(one.values))}
    ):
        for name, inner in _named(value):
            branch = one.values[int(name.removeprefix("member"))]
            return varint(one.branches.index(branch)) + _encode(branch, inner, path, depth + 1)
    first: InvalidRecord | None = None
    for branch in _candidates(one, value):
        try:
            return varint(one.branches.index(branch)) + _encode(branch, value, path, depth + 1)
        except InvalidRecord as error:
            first = first or error
    for name, inner in _named(value):
        for number, branch in enumerate(one.branches):
            if name in _names(branch):
                return varint(number) + _encode(branch, inner, path, depth + 1)
        member = name.removeprefix("member")
        if member.isdecimal() and int(member) < len(one.values) and name != member:
            branch = one.values[int(member)]
            return varint(one.branches.index(branch)) + _encode(branch, inner, path, depth + 1)
    # With one branch besides null, its own error says more.
    if first is not None and len(one.values) == 1 and value is not None:
        raise first
    raise _unfit(one, value, path)


def _candidates(one: Union, value: Any) -> list[AvroType]:
    """The branches in the order in which they are tried: text is a string before it is base64 or a date."""
    if value is None:
        return [branch for branch in one.branches if is_null(branch)]
    kinds = [branch.kind if isinstance(branch, Primitive) else "" for branch in one.branches]

    def rank(branch: AvroType) -> int:
        kind = branch.kind if isinstance(branch, Primitive) else ""
        if isinstance(value, str):
            return 0 if isinstance(branch, Enum) or (kind == "string") else 1
        # A float that is a double, too, would lose digits.
        return 1 if kind == "float" and "double" in kinds else 0

    return sorted(one.values, key=rank)


def _named(value: Any) -> list[tuple[str, Any]]:
    """The branch that an object names: its only field, or the only one that is not null."""
    if not isinstance(value, dict):
        return []
    given = [(str(name), each) for name, each in value.items() if each is not None]
    return given if len(given) == 1 else []


def _names(branch: AvroType) -> tuple[str, ...]:
    if isinstance(branch, Primitive):
        return (branch.kind,)
    if isinstance(branch, Array | Map | Union):
        return (type(branch).__name__.lower(),)
    return (branch.name, branch.name.rpartition(".")[2])


def _enum(one: Enum, value: Any) -> bytes | None:
    return varint(one.symbols.index(value)) if isinstance(value, str) and value in one.symbols else None


def _fixed(one: Fixed, value: Any) -> bytes | None:
    if one.logical is not None and one.logical.name == "decimal":
        unscaled = _unscaled(one.logical, value)
        return None if unscaled is None else unscaled.to_bytes(one.size, "big", signed=True)
    if one.logical is not None and one.logical.name == "uuid":
        found = _uuid(value)
        return None if found is None else found.bytes
    if one.logical is not None and one.logical.name == "duration":
        names = ("months", "days", "milliseconds")
        if not isinstance(value, dict) or sorted(value) != sorted(names):
            return None
        numbers = [value[name] for name in names]
        fit = all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 32 for each in numbers)
        return struct.pack("<III", *numbers) if fit else None
    data = _base64(value)
    return data if data is not None and len(data) == one.size else None


def _whole(one: Primitive, value: Any) -> bytes | None:
    limit = _RANGES[one.kind]
    lowest, highest = -limit, limit
    if one.logical is not None:
        lowest, highest = (
            (0, UNITS_IN_A_DAY[one.logical.name]) if one.logical.name in UNITS_IN_A_DAY else (lowest, highest)
        )
        if isinstance(value, str):
            value = _time(one.logical.name, value)
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value < highest:
        return None
    return varint(value)


def _float(one: Primitive, value: Any) -> bytes | None:
    if isinstance(value, str) and value.lower() in _NOT_FINITE:
        value = float(_NOT_FINITE[value.lower()])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    kind = "<f" if one.kind == "float" else "<d"
    try:
        data = struct.pack(kind, value)
    except OverflowError:
        return None
    # A fraction is the nearest number; a whole number that is another one afterwards is an identifier, or an amount.
    return None if isinstance(value, int) and struct.unpack(kind, data)[0] != value else data


def _bytes(one: Primitive, value: Any) -> bytes | None:
    if one.logical is not None:
        unscaled = _unscaled(one.logical, value)
        if unscaled is None:
            return None
        data: bytes | None = unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    else:
        data = _base64(value)
    return None if data is None else varint(len(data)) + data


def _string(one: Primitive, value: Any) -> bytes | None:
    if not isinstance(value, str) or (one.logical is not None and _uuid(value) is None):
        return None
    try:
        text = value.encode()
    except UnicodeEncodeError:
        return None
    return varint(len(text)) + text


_PRIMITIVES: dict[str, Callable[[Primitive, Any], bytes | None]] = {
    "null": lambda _, value: b"" if value is None else None,
    "boolean": lambda _, value: bytes([value]) if isinstance(value, bool) else None,
    "int": _whole,
    "long": _whole,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "string": _string,
}


def _unscaled(logical: Logical, value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = Decimal(value.text if isinstance(value, Exact) else str(value))
        scaled = found.scaleb(logical.scale, _EXACT)
    except DecimalException:
        return None
    if not found.is_finite() or scaled != scaled.to_integral_value():
        return None
    # By its digits: `abs` rounds a decimal to 28 of them.
    return int(scaled) if not scaled or scaled.adjusted() < logical.precision else None


def _uuid(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) and len(value) == 36 else None
    except ValueError:
        return None


def _base64(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _time(logical: str, text: str) -> int | None:
    """The number that Avro stores for a date, a time or a timestamp in ISO 8601. None if digits would be lost."""
    try:
        if logical == "date":
            return (datetime.date.fromisoformat(text) - _EPOCH.date()).days
        found = _FRACTION.match(text)
        whole, digits = (found[1] + found[3], found[2]) if found is not None else (text, "")
        fraction = int(digits.ljust(9, "0"))
        if logical.startswith("time-"):
            moment = datetime.time.fromisoformat(whole)
            if moment.tzinfo is not None:
                return None
            seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
        else:
            stamp = datetime.datetime.fromisoformat(whole)
            if stamp.tzinfo is None:
                stamp = stamp.replace(tzinfo=datetime.UTC)
            elif logical.startswith("local-"):
                return None
            passed = stamp - _EPOCH
            seconds = passed.days * 86_400 + passed.seconds
    except ValueError:
        return None
    unit = _UNITS[logical.rpartition("-")[2]]
    return None if fraction % (10**9 // unit) else seconds * unit + fraction // (10**9 // unit)


def _block(items: list[bytes]) -> bytes:
    return varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _place(path: str) -> str:
    return f"field {path}: " if path else ""


def _unfit(one: AvroType, value: Any, path: str) -> InvalidRecord:
    shown = json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return InvalidRecord(f"{_place(path)}expected {describe(one)}, found {shown}")
