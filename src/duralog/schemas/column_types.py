"""Nested column types: leaving out fields that were not asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from duralog.errors import SchemaError


def pruned_type(type_: pa.DataType, columns: Sequence[str]) -> pa.DataType:
    """The type with only the named fields, nested ones with dots (`customer.id`), in the order of the type.

    A name stands for all that is below it. Lists of structs are entered like structs.
    """
    wanted: dict[str, list[str]] = {}
    for column in columns:
        name, _, rest = column.partition(".")
        wanted.setdefault(name, []).append(rest)
    return _pruned(type_, wanted, "")


def _pruned(type_: pa.DataType, wanted: dict[str, list[str]], path: str) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_pruned(type_.value_type, wanted, path)))
    if not pa.types.is_struct(type_):
        raise SchemaError(f"{path.rstrip('.') or 'the payload'} is a {type_}: it has no fields {sorted(wanted)}")
    names = [field.name for field in type_]
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise SchemaError(f"there is no field {path}{unknown[0]}; there are {shown}")
    fields = []
    for field in type_:
        rests = wanted.get(field.name)
        if rests is None:
            continue
        if "" not in rests:
            below: dict[str, list[str]] = {}
            for rest in rests:
                name, _, deeper = rest.partition(".")
                below.setdefault(name, []).append(deeper)
            field = field.with_type(_pruned(field.type, below, f"{path}{field.name}."))
        fields.append(field)
    return pa.struct(fields)


def projected(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column with only the fields of a pruned type. Copies nothing but null bits."""
    if values.type == type_:
        return values
    mask = pc.is_null(values) if values.null_count else None
    if pa.types.is_struct(type_):
        children = [projected(values.field(field.name), field.type) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    return pa.ListArray.from_arrays(values.offsets, projected(values.values, type_.value_type), type=type_, mask=mask)
