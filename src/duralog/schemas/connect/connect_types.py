"""Column types of Kafka Connect's schemas, as its JSON converter writes them next to each payload.

Records of one topic have several schemas over time. The column has the fields of all of them, and each record is read
by its own schema: the scale of a decimal and the unit of a time are there and nowhere else. `reading_field` is how a
record's own fields are read so that they can be cast to those of the column.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.column_types import DIGITS, wider_type
from duralog.schemas.json_types import (
    AS_BASE64,
    AS_FLOAT_TEXT,
    AS_LOOSE_TEXT,
    AS_PAIRS,
    AS_TEXT,
    ENCODING,
    EXPECTED,
    MAX_DEPTH,
    MAX_FIELDS,
    check_name,
    text_field,
)

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
}
_FLOATS: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
}
_NAMED: dict[tuple[str, str], pa.DataType] = {
    ("org.apache.kafka.connect.data.Date", "int32"): pa.date32(),
    ("org.apache.kafka.connect.data.Time", "int32"): pa.time32("ms"),
    ("org.apache.kafka.connect.data.Timestamp", "int64"): pa.timestamp("ms", "UTC"),
    # Debezium's are of a database's local time.
    ("io.debezium.time.Date", "int32"): pa.date32(),
    ("io.debezium.time.Time", "int32"): pa.time32("ms"),
    ("io.debezium.time.MicroTime", "int64"): pa.time64("us"),
    ("io.debezium.time.NanoTime", "int64"): pa.time64("ns"),
    ("io.debezium.time.Timestamp", "int64"): pa.timestamp("ms"),
    ("io.debezium.time.MicroTimestamp", "int64"): pa.timestamp("us"),
    ("io.debezium.time.NanoTimestamp", "int64"): pa.timestamp("ns"),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def connect_type(schema: object) -> pa.Field:
    """The column of one schema; raises `SchemaError`."""
    return _FromConnect().field("value", schema)


class _FromConnect:
    def __init__(self) -> None:
        self._count = 0

    def field(self, name: str, schema: object, depth: int = 0) -> pa.Field:
        self._count += 1
        check_name(name, "Connect schema")
        if self._count > MAX_FIELDS or depth > MAX_DEPTH:
            raise SchemaError(f"the Connect schema has more than {MAX_FIELDS:,} fields, or is nested too deeply")
        if not isinstance(schema, dict) or not isinstance(schema.get("type"), str):
            return text_field(name)
        kind, meaning = schema["type"], schema.get("name")
        named = _NAMED.get((str(meaning), kind), _PLAIN.get(kind))
        if named is not None:
            return pa.field(name, named)
        if kind in _FLOATS:
            return pa.field(name, _FLOATS[kind], metadata={ENCODING: AS_FLOAT_TEXT})
        if kind == "bytes":
            return pa.field(name, _bytes_type(schema), metadata={ENCODING: AS_BASE64})
        if kind == "struct" and isinstance(schema.get("fields"), list):
            fields = [each for each in schema["fields"] if isinstance(each, dict)]
            return pa.field(name, pa.struct([self.field(str(each.get("field")), each, depth + 1) for each in fields]))
        if kind == "array":
            return pa.field(name, pa.list_(self.field("item", schema.get("items"), depth + 1)))
        if kind == "map" and isinstance(schema.get("keys"), dict):
            return self._map(name, schema["keys"], schema.get("values"), depth)
        return text_field(name)

    def _map(self, name: str, keys: dict[str, Any], values: object, depth: int) -> pa.Field:
        """An object if its keys are strings; else an array of pairs."""
        key, value = self.field("key", keys, depth + 1), self.field("value", values, depth + 1)
        type_ = pa.map_(key.with_nullable(False), value)
        return pa.field(name, type_) if keys.get("type") == "string" else pa.field(name, type_, metadata=_PAIRS)


_PAIRS = {ENCODING: AS_PAIRS}


def _bytes_type(schema: dict[str, Any]) -> pa.DataType:
    """Bytes, too, where no decimal of Arrow has that many digits."""
    parameters = schema.get("parameters")
    if schema.get("name") != _DECIMAL or not isinstance(parameters, dict):
        return pa.binary()
    scale, precision = str(parameters.get("scale")), str(parameters.get("connect.decimal.precision", 38))
    if not (scale.isdecimal() and len(scale) <= 4):
        return pa.binary()
    digits = int(precision) if precision.isdecimal() and len(precision) <= 4 and int(precision) > 0 else 38
    return _decimal(max(digits, int(scale)), int(scale)) or pa.binary()


def _decimal(digits: int, scale: int) -> pa.DataType | None:
    if digits > 76:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def merged_field(older: pa.Field, newer: pa.Field) -> pa.Field:
    """One column for both: fields of either, numbers that hold those of both, text that holds numbers.

    Of types that no value can be of both, it is the newer one. New fields come last, as in tables.
    """
    old, new = older.type, newer.type
    if old == new or _is_text(newer) or _is_text(older):
        return newer
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        found = {each.name: each for each in old}
        for each in new:
            found[each.name] = merged_field(found[each.name], each) if each.name in found else each
        if len(found) > MAX_FIELDS:
            raise SchemaError(f"the Connect schemas of the sample have more than {MAX_FIELDS:,} fields together")
        return newer.with_type(pa.struct(list(found.values())))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return newer.with_type(pa.list_(merged_field(old.value_field, new.value_field)))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return newer.with_type(pa.map_(new.key_field, merged_field(old.item_field, new.item_field)))
    common = wider_type(old, new) or _common_type(old, new) or new
    # What is written as text or bytes is so in both.
    return older if common == old else newer.with_type(common)


def completed_field(field: pa.Field, inferred: pa.Field) -> pa.Field:
    """The column of schemas, with the fields that only payloads without a schema have. Schemas know more of types."""
    known, found = field.type, inferred.type
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        rest = {each.name: each for each in found}
        fields = [completed_field(each, rest.pop(each.name)) if each.name in rest else each for each in known]
        return field.with_type(pa.struct([*fields, *rest.values()]))
    if pa.types.is_list(known) and pa.types.is_list(found):
        return field.with_type(pa.list_(completed_field(known.value_field, found.value_field)))
    return field


def _common_type(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Of values that are of neither type alone."""
    for one, other in ((old, new), (new, old)):
        if pa.types.is_string(one) and _becomes_text(other):
            return one
        if pa.types.is_float64(one) and pa.types.is_integer(other):
            return one
        if pa.types.is_decimal(one) and (pa.types.is_decimal(other) or pa.types.is_integer(other)):
            scale = max(one.scale, other.scale if pa.types.is_decimal(other) else 0)
            return _decimal(max(_whole_digits(one), _whole_digits(other)) + scale, scale)
        if _is_finer(one, other):
            return one
        if pa.types.is_timestamp(one) and pa.types.is_date(other):
            return one
    return None


def _whole_digits(type_: pa.DataType) -> int:
    """Before the decimal point."""
    return int(type_.precision - type_.scale) if pa.types.is_decimal(type_) else DIGITS[type_.bit_width]


def _becomes_text(type_: pa.DataType) -> bool:
    return any(
        is_of(type_) for is_of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    )


_UNITS = ("s", "ms", "us", "ns")


def _is_finer(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether these are times of the same kind, and the first has the finer unit."""
    is_timestamp = pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz
    is_time = pa.types.is_time(one) and pa.types.is_time(other)
    return bool(is_timestamp or is_time) and _UNITS.index(one.unit) > _UNITS.index(other.unit)


def _is_text(field: pa.Field) -> bool:
    return (field.metadata or {}).get(ENCODING) in (AS_TEXT, AS_LOOSE_TEXT)


def reading_field(own: pa.Field, column: pa.Field) -> pa.Field:
    """How values of a record's own schema are read: with its types, and the fields of the column in their order."""
    found, wanted = own.type, column.type
    if _is_text(column) or _is_text(own) or found == wanted:
        return column
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        named = {each.name: each for each in found}
        fields = [reading_field(named[each.name], each) if each.name in named else each for each in wanted]
        return column.with_type(pa.struct(fields))
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return column.with_type(pa.list_(reading_field(found.value_field, wanted.value_field)))
    if pa.types.is_map(found) and pa.types.is_map(wanted) and found.key_type == wanted.key_type:
        item = reading_field(found.item_field, wanted.item_field)
        return column.with_type(pa.map_(wanted.key_field, item))
    if _is_cast(found, wanted):
        return own.with_name(column.name)
    expected = f"{wanted}, and its own schema says {found}"
    return pa.field(column.name, pa.null(), metadata={EXPECTED: expected.encode()})


def _is_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow casts values that the other type can hold, and no others."""
    common = wider_type(found, wanted) or _common_type(found, wanted)
    is_cut = pa.types.is_string(found) or pa.types.is_float32(wanted) or pa.types.is_date(wanted)
    return common == wanted or (common is not None and not is_cut)
