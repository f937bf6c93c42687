"""JSON of Kafka Connect's converter: `{"schema": ..., "payload": ...}`, or the payload alone.

A sample gives the column's type: the fields of all schemas in it, and of payloads without one. Each record is read by
the schema next to it and cast to the column. What the column cannot hold makes its row bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.column_types import pruned_type
from duralog.schemas.connect.connect_types import completed_field, connect_type, merged_field, reading_field
from duralog.schemas.frames import MessagePlace
from duralog.schemas.json_payloads import JsonPayloads, parsed_sample
from duralog.schemas.json_types import infer_type
from duralog.schemas.payloads import Decoded, Payloads, in_order
from duralog.schemas.registered_schema import RegisteredSchema

_MOST_SCHEMAS = 100
"""That a decoder remembers. The table of a topic has a handful."""


class ConnectFormat:
    """The decoder of payloads of a type that a sample gave."""

    def __init__(self, columns: Sequence[str] | None, inferred: pa.Field | None) -> None:
        if inferred is None:
            raise SchemaError("JSON of Kafka Connect needs a type that was inferred from a sample of the topic")
        wanted = inferred if columns is None else inferred.with_type(pruned_type(inferred.type, columns))
        self._payloads = _ConnectPayloads(wanted, whole=inferred)
        self.arrow_type = wanted.type

    def payloads(self, _writer: RegisteredSchema | None, _place: MessagePlace | None) -> Payloads:
        """The same for all writers."""
        return self._payloads


class _ConnectPayloads(JsonPayloads):
    def __init__(self, field: pa.Field, *, whole: pa.Field) -> None:
        super().__init__(field, whole=whole)
        self._own: list[tuple[object, pa.Field | str]] = []
        """Schemas, and the fields to read their payloads with, or what is wrong with them."""

    def _built(self, values: list[Any], reasons: dict[int, str]) -> Decoded:
        fields: list[pa.Field] = [self._field]
        rows: list[list[int]] = [[]]
        last: tuple[object, int] | None = None
        for row, value in enumerate(values):
            schema = schema_of(value)
            if schema is None:
                rows[0].append(row)
                continue
            if last is None or last[0] != schema:
                last = schema, self._group(schema, fields, rows)
            if last[1] < 0:
                reasons[row] = str(self._reading(schema))
            rows[max(last[1], 0)].append(row)
        values = [None if row in reasons else unwrapped(value) for row, value in enumerate(values)]
        parts = []
        for field, group in zip(fields, rows, strict=True):
            if group:
                own = {at: reasons[row] for at, row in enumerate(group) if row in reasons}
                read = self._as_column([values[row] for row in group], own, field)
                parts.append((np.array(group), _cast(read, self.arrow_type)))
        return in_order(parts, len(values), self.arrow_type)

    def _group(self, schema: object, fields: list[pa.Field], rows: list[list[int]]) -> int:
        """The number of the group that is read like this; -1 for a bad schema."""
        field = self._reading(schema)
        if isinstance(field, str):
            return -1
        for number, known in enumerate(fields):
            if known.equals(field, check_metadata=True):
                return number
        fields.append(field)
        rows.append([])
        return len(fields) - 1

    def _reading(self, schema: object) -> pa.Field | str:
        for known, field in self._own:
            if known == schema:
                return field
        try:
            found: pa.Field | str = reading_field(connect_type(schema), self._field)
        except SchemaError as error:
            found = str(error)
        if len(self._own) < _MOST_SCHEMAS:
            self._own.append((schema, found))
        return found


def _cast(read: Decoded, type_: pa.DataType) -> Decoded:
    """The same with the column's types: what these do not hold makes its row bad."""
    if read.values.type == type_:
        return read
    try:
        return replace(read, values=read.values.cast(type_))
    except pa.ArrowException:
        pass
    parts, reasons = [], read.reasons.to_pylist()
    for row in range(len(read.values)):
        try:
            # A slice would be cast with what is around it.
            one = read.values.take(pa.array([row]))
            parts.append(one.cast(type_))
        except pa.ArrowException:
            parts.append(pa.nulls(1, type_))
            reasons[row] = _misfit(one, type_, "")
    return replace(read, values=pa.concat_arrays(parts), reasons=pa.array(reasons, pa.string()))


def _misfit(values: pa.Array, type_: pa.DataType, path: str) -> str | None:
    """Which field cannot be cast, and why; None if all can."""
    if pa.types.is_struct(type_):
        below = ((values.field(each.name), each.type, each.name) for each in type_)
        found = (_misfit(child, each, f"{path}.{name}" if path else name) for child, each, name in below)
        return next((reason for reason in found if reason is not None), None)
    if pa.types.is_list(type_):
        return _misfit(values.flatten(), type_.value_type, f"{path}[]")
    try:
        values.cast(type_)
    except pa.ArrowException as error:
        return f"{path or 'the payload'} is not {type_}: {error}"
    return None


def is_wrapped(value: object) -> bool:
    """Whether a parsed payload has the converter's wrapper."""
    return isinstance(value, dict) and value.keys() == {"schema", "payload"}


def schema_of(value: object) -> object | None:
    """The schema next to a parsed payload; None if there is none."""
    found = value["schema"] if isinstance(value, dict) and is_wrapped(value) else None
    return found if isinstance(found, dict) else None


def unwrapped(value: object) -> object:
    """The payload itself, without the converter's wrapper."""
    return value["payload"] if isinstance(value, dict) and is_wrapped(value) else value


def is_connect(value: object) -> bool:
    """Whether a parsed payload is wrapped as Connect wraps it: with a schema of one of its types, or with null."""
    schema = schema_of(value)
    if schema is None:
        return isinstance(value, dict) and is_wrapped(value) and value["schema"] is None
    return isinstance(schema, dict) and isinstance(schema.get("type"), str)


def infer_connect_type(payloads: pa.Array) -> pa.Field:
    """The column of a sample; raises `SchemaError` if none of its payloads is wrapped with a schema."""
    values = parsed_sample(payloads)
    if not any(is_connect(value) for value in values):
        raise SchemaError("no payload of the sample is JSON of Kafka Connect: none has a schema and a payload")
    return column_of(values)


def column_of(
    values: Sequence[object], plain: Callable[[object], Iterable[object]] = lambda value: [value]
) -> pa.Field:
    """The column that has the fields of all these parsed payloads.

    `plain` is what the type of a payload without a schema is inferred from, if it is not the payload alone.
    """
    known: list[object] = []
    found: pa.Field | None = None
    for schema in map(schema_of, values):
        if schema is None or schema in known:
            continue
        known.append(schema)
        field = connect_type(schema)
        found = field if found is None else merged_field(found, field)
    bare = [unwrapped(value) for value in values if schema_of(value) is None]
    if bare or found is None:
        inferred = infer_type(bare if plain is None else chain.from_iterable(map(plain, bare)))
        found = inferred if found is None else completed_field(found, inferred)
    return found
