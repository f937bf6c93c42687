"""Whether the defaults of an Avro schema are values of their types, by its specification up to 1.11.

That is stricter than decoding (`duralog.schemas.avro.defaults`): the default of a union is a value of its first branch.
Parsers of Avro 1.11 and before refuse other schemas, so a registry must not take them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from duralog.errors import SchemaError
from duralog.schemas.avro.defaults import encode_default
from duralog.schemas.avro.parsing import AvroSchema
from duralog.schemas.avro.schema import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    describe,
)

_LONGEST_TEXT = 100


def check_defaults(schema: AvroSchema) -> None:
    """Raises `SchemaError` for a default that is not a value of its type."""
    seen: set[int] = set()
    pending: list[AvroType] = [schema.root]
    while pending:
        one = pending.pop()
        if isinstance(one, Array):
            pending.append(one.items)
        elif isinstance(one, Map):
            pending.append(one.values)
        elif isinstance(one, Union):
            pending += one.branches
        elif isinstance(one, Record) and id(one) not in seen:
            seen.add(id(one))
            for field in one.fields:
                pending.append(field.type)
                if field.default is not NO_DEFAULT and not _is_value(field.type, field.default):
                    raise SchemaError(f"field {field.name} of {one.name}: {_problem(field)}")


def _problem(field: Field) -> str:
    default, type_ = repr(field.default)[:_LONGEST_TEXT], describe(field.type)[:_LONGEST_TEXT]
    hint = ": it must be one of the first branch" if isinstance(field.type, Union) else ""
    return f"the default {default} is not a value of its type, {type_}{hint}"


def _is_value(one: AvroType, value: Any) -> bool:
    if isinstance(one, Union):
        return _is_value(one.branches[0], value)
    if isinstance(one, Array):
        return isinstance(value, list) and all(_is_value(one.items, each) for each in value)
    if isinstance(one, Map):
        return isinstance(value, dict) and all(_is_value(one.values, each) for each in value.values())
    if isinstance(one, Record):
        # A field that is left out has its own default, which is checked for itself.
        return isinstance(value, dict) and all(
            _is_value(field.type, value[field.name]) if field.name in value else field.default is not NO_DEFAULT
            for field in one.fields
        )
    return _is_simple_value(one, value)


def _is_simple_value(one: Primitive | Fixed | Enum, value: Any) -> bool:
    # Readers that do not know a logical type take any value of the type itself.
    plain = one if isinstance(one, Enum) else replace(one, logical=None)
    try:
        encode_default(plain, value, "")
    except SchemaError:
        return False
    return True
