"""Avro schemas as values: types with their full names resolved. `parsing` makes them of JSON.

A named type is one object wherever it is used, so a recursive type contains itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

UNITS_IN_A_DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""A time of day is less."""


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type that is valid for the type that it annotates. Others are ignored, as Avro demands."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Primitive:
    kind: str
    logical: Logical | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    name: str
    aliases: frozenset[str]
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    name: str
    aliases: frozenset[str]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[AvroType, ...]

    @property
    def has_null(self) -> bool:
        return any(is_null(branch) for branch in self.branches)

    @property
    def values(self) -> tuple[AvroType, ...]:
        """The branches that are not null."""
        return tuple(branch for branch in self.branches if not is_null(branch))


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    aliases: frozenset[str]
    default: Any
    """As JSON has it, or `NO_DEFAULT`."""


@dataclass(slots=True, eq=False)
class Record:
    name: str
    aliases: frozenset[str]
    fields: tuple[Field, ...] = ()
    """Filled when the record is read to its end: a field may refer to the record."""


AvroType = Primitive | Fixed | Enum | Array | Map | Union | Record
Named = Fixed | Enum | Record


def is_null(one: AvroType) -> bool:
    return isinstance(one, Primitive) and one.kind == "null"


def logical_of(one: AvroType) -> Logical | None:
    return one.logical if isinstance(one, Primitive | Fixed) else None


def describe(one: AvroType) -> str:
    """A type in an error message."""
    logical = logical_of(one)
    suffix = "" if logical is None else f" ({logical.name})"
    if isinstance(one, Primitive):
        return one.kind + suffix
    if isinstance(one, Array):
        return "array"
    if isinstance(one, Map):
        return "map"
    if isinstance(one, Union):
        return f"union of {', '.join(describe(branch) for branch in one.branches)}"
    return f"{type(one).__name__.lower()} {one.name}{suffix}"
