"""How the columns of a table change as those of its topic do.

A table keeps every column that it ever had. New columns, nested ones too, are added at the end; where the topic has a
wider type than the table, the column becomes wider: longer integers, `double` for `float`, decimals with more digits
and the same scale. Everything else is refused, with the column and both types, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from duralog.errors import DuralogError
from duralog.schemas.column_types import wider_type
from duralog.schemas.json_types import AS_LOOSE_TEXT, AS_TEXT, ENCODING
from duralog.spark.fitting_types import fitting_cast, spark_fitting


class SchemaConflict(DuralogError):
    """The columns of a topic do not fit those of its table."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What becomes of a table's columns."""

    schema: pa.Schema
    added: tuple[str, ...] = ()
    """New columns and fields, with dots."""
    widened: tuple[str, ...] = ()
    """Columns and fields with a wider type: name, old and new type."""

    @property
    def is_change(self) -> bool:
        return bool(self.added or self.widened)

    def changes(self) -> tuple[str, ...]:
        return (*(f"new column {name}" for name in self.added), *(f"wider column {text}" for text in self.widened))


def evolved(table: pa.Schema, topic: pa.Schema, where: str) -> Evolution:
    """The table's columns when it has to hold the topic's, too."""
    added: list[str] = []
    widened: list[str] = []
    merge = _Merge(where, added, widened)
    found = merge.structs(list(table), list(topic), "")
    schema = pa.schema(found)
    check_names(schema, where)
    return Evolution(schema, tuple(added), tuple(widened))


@dataclass(frozen=True, slots=True)
class _Merge:
    where: str
    added: list[str]
    widened: list[str]

    def structs(self, old: Sequence[pa.Field], new: Sequence[pa.Field], path: str) -> list[pa.Field]:
        wanted = {field.name: field for field in new}
        fields = []
        for field in old:
            other = wanted.pop(field.name, None)
            name = f"{path}{field.name}"
            fields.append(field if other is None else field.with_type(self.types(field.type, other.type, name)))
        self.added.extend(f"{path}{name}" for name in wanted)
        return [*fields, *wanted.values()]

    def types(self, old: pa.DataType, new: pa.DataType, path: str) -> pa.DataType:
        if old == new:
            return old
        if pa.types.is_struct(old) and pa.types.is_struct(new):
            return pa.struct(self.structs(list(old), list(new), f"{path}."))
        if pa.types.is_list(old) and pa.types.is_list(new):
            return pa.list_(self.types(old.value_type, new.value_type, f"{path}.element"))
        if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
            return pa.map_(old.key_type, self.types(old.item_type, new.item_type, f"{path}.value"))
        wider = wider_type(old, new)
        if wider == old:
            return old
        if wider == new:
            self.widened.append(f"{path} from {old} to {new}")
            return new
        raise SchemaConflict(
            f"{self.where}: column {path} is {old} in the table and {new} in the topic: one cannot become the other."
            " The table stays as it was; give another target, or a schema in which the type is that of the table"
        )


def evolved_json(known: pa.Field, found: pa.Field) -> pa.Field:
    """The type of JSON without a schema, if earlier runs have inferred one already.

    What was found wins only where nothing was known. A field that was kept as text stays text, and one of which this
    run's sample has seen no value keeps its type: a value that does not fit then makes its record a bad one.
    """
    if _is_text(known) or _is_text(found):
        return known
    old, new = known.type, found.type
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        wanted = {field.name: field for field in new}
        merged = [evolved_json(field, wanted.pop(field.name)) if field.name in wanted else field for field in list(old)]
        return known.with_type(pa.struct([*merged, *wanted.values()]))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return known.with_type(pa.list_(evolved_json(old.value_field, new.value_field)))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return known.with_type(pa.map_(old.key_field, evolved_json(old.item_field, new.item_field)))
    if pa.types.is_float64(old) and pa.types.is_int64(new):
        # Numbers, none of which has a fraction in this sample.
        return known
    # Of two types that are not alike, `evolved` decides by what they are in the table.
    return known if wider_type(old, new) == old else found


def _is_text(field: pa.Field) -> bool:
    return (field.metadata or {}).get(ENCODING) in (AS_TEXT, AS_LOOSE_TEXT)


def table_type(type_: pa.DataType, path: str) -> pa.DataType:
    """A type that Parquet, Delta, Iceberg and Spark have, for a decoded one. All fields are nullable."""
    if pa.types.is_struct(type_):
        if not type_.num_fields:
            raise SchemaConflict(f"column {path} is a record without fields, which no table can hold")
        check_names(type_, f"column {path}")
        return pa.struct([pa.field(field.name, table_type(field.type, f"{path}.{field.name}")) for field in type_])
    if pa.types.is_map(type_):
        key = pa.field("key", table_type(type_.key_type, f"{path}.key"), nullable=False)
        return pa.map_(key, table_type(type_.item_type, f"{path}.value"))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(table_type(type_.value_type, f"{path}.element"))
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_duration(type_):
        # Microseconds: no table has them.
        return pa.int64()
    return spark_fitting(type_)


def check_names(fields: Any, where: str) -> None:
    """Readers of tables do not tell names apart by upper and lower case."""
    seen: dict[str, str] = {}
    for name in (str(field.name) for field in fields):
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            raise SchemaConflict(
                f"{where}: there are columns {other} and {name}: a table cannot have both, since its readers do"
                " not tell upper from lower case. Give a schema without one of them, or another target"
            )


def conformed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A decoded column as the table has it: fields in its order, those that are missing null, narrower types wider.

    Raises `ArrowInvalid` for values that do not fit.
    """
    if array.type == type_:
        return array
    if pa.types.is_struct(type_) and pa.types.is_struct(array.type):
        names = {field.name for field in array.type}
        children = [
            conformed(array.field(field.name), field.type) if field.name in names else pa.nulls(len(array), field.type)
            for field in type_
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if pa.types.is_list(type_) and pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(_edges(array), conformed(array.flatten(), type_.value_type), type=type_)
    if pa.types.is_map(type_) and pa.types.is_map(array.type):
        # Without what lies before a slice, or belongs to rows that are null.
        array = array.take(pa.array(np.arange(len(array))))
        pairs = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field]))).flatten()
        keys, items = pairs.field(0), conformed(pairs.field(1), type_.item_type)
        return pa.MapArray.from_arrays(_edges(array), fitting_cast(keys, type_.key_type), items, type_)
    return fitting_cast(array, type_)


def _edges(array: pa.Array) -> pa.Array:
    """The offsets of lists whose values were flattened; null for a null list."""
    lengths = np.diff(np.asarray(array.offsets))
    is_valid = np.asarray(array.is_valid())
    edges = np.concatenate([[0], np.cumsum(np.where(is_valid, lengths, 0))]).astype(np.int32)
    return pa.array(edges, pa.int32(), mask=np.append(~is_valid, False))
