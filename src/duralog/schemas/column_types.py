"""Column types: leaving out fields that were not asked for, and which of two types is the wider one."""

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


def field_paths(type_: pa.DataType, path: str = "") -> list[str]:
    """The fields of a type, nested ones with dots, also those of structs in lists."""
    if pa.types.is_list(type_):
        return field_paths(type_.value_type, path)
    if not pa.types.is_struct(type_):
        return []
    found = []
    for field in type_:
        found += [f"{path}{field.name}", *field_paths(field.type, f"{path}{field.name}.")]
    return found


def projected(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The column with only the fields of a pruned type. Copies nothing but null bits."""
    if values.type == type_:
        return values
    mask = pc.is_null(values) if values.null_count else None
    if pa.types.is_struct(type_):
        children = [projected(values.field(field.name), field.type) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    return pa.ListArray.from_arrays(values.offsets, projected(values.values, type_.value_type), type=type_, mask=mask)


DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Of whole numbers with so many bits."""


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The one of two types that has every value of both, as tables have it when a column becomes wider.

    These are longer integers, double for float, and decimals with more digits and the same scale.
    """
    for wide, narrow in ((one, other), (other, one)):
        if wide == narrow:
            return wide
        are_whole = pa.types.is_signed_integer(wide) and pa.types.is_signed_integer(narrow)
        if are_whole and wide.bit_width > narrow.bit_width:
            return wide
        if pa.types.is_float64(wide) and pa.types.is_float32(narrow):
            return wide
        are_decimals = pa.types.is_decimal(wide) and pa.types.is_decimal(narrow)
        if are_decimals and wide.scale == narrow.scale and wide.precision >= narrow.precision:
            return wide
    return None
