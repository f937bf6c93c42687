"""The columns of a DataFrame that is written: which there may be, of which types, and what each means.

They are those of Spark's Kafka sink, in any case, and those of a DataFrame that was read, so that it can be written
again. A column of another name is refused: a mistyped `key` would silently be left out.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from duralog.columnar import schema
from duralog.errors import InvalidRecord
from duralog.spark.connector_columns import TIMESTAMP_TYPE
from duralog.spark.sink.write_options import WriteOptions


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or _is_text(kind))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Not a time without a zone: its meaning depends on Spark's session."""
    return bool(kind.tz is not None if pa.types.is_timestamp(kind) else pa.types.is_int64(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return fields.keys() == {"key", "value"} and _is_text(fields["key"]) and _is_bytes(fields["value"])


_COLUMNS: dict[str, tuple[str, Callable[[pa.DataType], bool], str]] = {
    "value": (schema.VALUE, _is_bytes, "binary or string"),
    "key": (schema.KEY, _is_bytes, "binary or string"),
    "topic": (schema.TOPIC, _is_text, "string"),
    "partition": (schema.PARTITION, pa.types.is_integer, "int"),
    "timestamp": (schema.TIMESTAMP, _is_time, "timestamp (cast timestamp_ntz to it), or long for milliseconds"),
    "headers": (schema.HEADERS, _is_headers, "array<struct<key: string, value: binary>>"),
    "offset": (schema.OFFSET, pa.types.is_int64, "long"),
    TIMESTAMP_TYPE.lower(): (schema.TIMESTAMP_TYPE, pa.types.is_integer, "int"),
}
_NAMES = ", ".join([*list(_COLUMNS)[:-1], TIMESTAMP_TYPE])


def record_names(columns: pa.Schema, options: WriteOptions) -> list[str]:
    """The records' names of the columns, in their order. Refuses what cannot be written, before any row is seen."""
    names: list[str] = []
    needed = {schema.OFFSET, schema.PARTITION} if options.preserve_offsets else set()
    needed |= {schema.TOPIC} if options.topic is None else set()
    for field in columns:
        known = _COLUMNS.get(field.name.lower())
        if known is None:
            raise InvalidRecord(f"column {field.name}: there is no such column in a log; there are {_NAMES}")
        name, fits, expected = known
        if name in names:
            raise InvalidRecord(f"column {field.name}: expected one column of this name, found two")
        if not (fits(field.type) or (pa.types.is_null(field.type) and name not in needed)):
            raise InvalidRecord(f"column {field.name}: expected {expected}, found {field.type}")
        names.append(name)
    if schema.VALUE not in names:
        raise InvalidRecord(f"column value is missing; found {', '.join(columns.names)}")
    missing = needed.difference(names)
    if schema.TOPIC in missing:
        raise InvalidRecord("there is neither a column topic nor the option topic: give one of them")
    if missing:
        raise InvalidRecord(
            f"column {' and '.join(sorted(missing))} is missing: preserveOffsets needs it to restore each record"
        )
    return names


def as_records(table: pa.Table, names: list[str]) -> pa.Table:
    """The rows under the records' names. A column of nothing but nulls is none."""
    table = table.rename_columns(names)
    blank = [field.name for field in table.schema if pa.types.is_null(field.type) and field.name != schema.VALUE]
    return table.drop_columns(blank) if blank else table
