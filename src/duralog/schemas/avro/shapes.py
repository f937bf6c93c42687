"""What a reader's schema is in Arrow: one shape for each type, with the columns that the kernel fills.

The types are those that Spark's `from_avro` gives, where Spark has one: an enum is a string, a union with null is a
nullable type, any other union is a struct of nullable members `member0`, `member1`, ..., and a union of int and long,
or of float and double, is the wider one. All fields are nullable, as Spark makes them for rows that may be bad.

| Avro | Arrow |
|---|---|
| int, long, float, double, boolean, string, bytes, null | int32, int64, float, double, bool, string, binary, null |
| fixed | fixed-size binary |
| decimal | decimal128 up to 38 digits, else decimal256 |
| uuid | string |
| date, time-millis, time-micros | date32, time32, time64 |
| timestamp-millis, -micros, -nanos | timestamp in UTC; local-timestamp: without a zone |
| duration | struct of months, days and milliseconds |

Recursive types have no Arrow type, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from duralog.errors import SchemaError
from duralog.kernels.avro.program import BITS, NOTHING, OFFSETS
from duralog.schemas.avro.schema import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    Union,
    logical_of,
)

MAX_TYPES = 50_000
"""A type that is used twice counts twice: a few lines of schema can become millions of columns."""

DURATION = pa.struct([(name, pa.int64()) for name in ("months", "days", "milliseconds")])

Wanted = dict[str, "Wanted"]
"""The fields of a record that are asked for; an empty one means all of them."""

_PRIMITIVES = {
    "null": (pa.null(), NOTHING),
    "boolean": (pa.bool_(), BITS),
    "int": (pa.int32(), 4),
    "long": (pa.int64(), 8),
    "float": (pa.float32(), 4),
    "double": (pa.float64(), 8),
    "bytes": (pa.binary(), OFFSETS),
    "string": (pa.string(), OFFSETS),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


@dataclass(slots=True, eq=False)
class Shape:
    """A type of the result. `column` and `domain` are numbers of the tables of the kernel."""

    arrow_type: pa.DataType
    kind: int
    """Of its column; see `duralog.kernels.avro.program`."""
    is_nullable: bool
    column: int = 0
    domain: int = 0

    def children(self) -> Iterable[Shape]:
        """Those of the same domain."""
        return ()


@dataclass(slots=True, eq=False)
class Scalar(Shape):
    type: Primitive | Fixed | Enum = field(kw_only=True)


@dataclass(slots=True, eq=False)
class Struct(Shape):
    """A record, or the members of a union."""

    fields: dict[str, Shape] = field(kw_only=True)

    def children(self) -> Iterable[Shape]:
        return self.fields.values()


@dataclass(slots=True, eq=False)
class Items(Shape):
    """A list, or with keys a map."""

    key: Scalar | None = field(kw_only=True)
    item: Shape = field(kw_only=True)
    items_domain: int = 0


def wanted_fields(columns: Iterable[str] | None) -> Wanted:
    """Dotted paths as a tree."""
    tree: Wanted = {}
    for column in sorted(columns or (), key=lambda column: column.count(".")):
        names = column.split(".")
        level = tree
        for name in names:
            if name in level and not level[name]:
                break  # all of it is asked for already
            level = level.setdefault(name, {})
    return tree


class ShapeMaker:
    """Makes the shapes of one result, and numbers their columns and domains."""

    def __init__(self) -> None:
        self.columns: list[Shape] = []
        self.domains = 1
        self._inside: list[str] = []

    def make(self, one: AvroType, wanted: Wanted | None, path: str = "", domain: int = 0) -> Shape:
        """`wanted`: None for all, else the fields to keep."""
        return self._make(one, wanted, path, domain, is_nullable=False)

    def _make(self, one: AvroType, wanted: Wanted | None, path: str, domain: int, *, is_nullable: bool) -> Shape:
        if isinstance(one, Union):
            return self._union(one, wanted, path, domain)
        number = len(self.columns)
        if number >= MAX_TYPES:
            raise SchemaError(
                f"{place(path)}: the schema has more than {MAX_TYPES:,} columns. Select some with `columns`"
            )
        shape: Shape
        if isinstance(one, Record):
            shape = Struct(pa.null(), NOTHING, is_nullable, number, domain, fields={})
            self.columns.append(shape)
            self._fill_record(shape, one, wanted, path)
            return shape
        if isinstance(one, Array | Map):
            key = None
            unknown = Shape(pa.null(), NOTHING, False)
            shape = Items(
                pa.null(), OFFSETS, is_nullable, number, domain, key=None, item=unknown, items_domain=self.domains
            )
            self.columns.append(shape)
            self.domains += 1
            if isinstance(one, Map):
                key = Scalar(
                    pa.string(), OFFSETS, False, len(self.columns), shape.items_domain, type=Primitive("string")
                )
                self.columns.append(key)
                shape.key = key
            shape.item = self.make(item_type(one), wanted, path, shape.items_domain)
            item = shape.item.arrow_type
            shape.arrow_type = pa.list_(item) if key is None else pa.map_(pa.string(), item)
            return shape
        if wanted:
            raise SchemaError(f"{place(path)}: it has no field {next(iter(wanted))!r}, it is not a record")
        arrow_type, kind = scalar_type(one)
        shape = Scalar(arrow_type, kind, is_nullable and kind != NOTHING, number, domain, type=one)
        self.columns.append(shape)
        return shape

    def _fill_record(self, shape: Struct, record: Record, wanted: Wanted | None, path: str) -> None:
        if record.name in self._inside:
            raise SchemaError(recursion(record.name, path))
        self._inside.append(record.name)
        names = [one.name for one in record.fields]
        unknown = [name for name in wanted or () if name not in names]
        if unknown:
            raise SchemaError(f"{place(path)}: {record.name} has no field {unknown[0]!r}, only {', '.join(names)}")
        for one in record.fields:
            if wanted is None or one.name in wanted:
                inner = None if wanted is None else wanted[one.name] or None
                shape.fields[one.name] = self.make(one.type, inner, join(path, one.name), shape.domain)
        self._inside.pop()
        shape.arrow_type = pa.struct([(name, child.arrow_type) for name, child in shape.fields.items()])

    def _union(self, union: Union, wanted: Wanted | None, path: str, domain: int) -> Shape:
        values = union.values
        if len(values) <= 1:
            only = values[0] if values else union.branches[0]
            return self._make(only, wanted, path, domain, is_nullable=union.has_null)
        wider = wider_type(union)
        if wider is not None:
            return self._make(wider, wanted, path, domain, is_nullable=union.has_null)
        shape = Struct(pa.null(), NOTHING, union.has_null, len(self.columns), domain, fields={})
        self.columns.append(shape)
        names = [f"member{number}" for number in range(len(values))]
        unknown = [name for name in wanted or () if name not in names]
        if unknown:
            raise SchemaError(f"{place(path)}: the union has no field {unknown[0]!r}, only {', '.join(names)}")
        for name, branch in zip(names, values, strict=True):
            if wanted is None or name in wanted:
                inner = None if wanted is None else wanted[name] or None
                shape.fields[name] = self._make(branch, inner, join(path, name), domain, is_nullable=True)
        shape.arrow_type = pa.struct([(name, child.arrow_type) for name, child in shape.fields.items()])
        return shape


def same_domain(shape: Shape) -> Iterator[Shape]:
    """The shape and all inside it that have a row wherever it has one."""
    yield shape
    for child in shape.children():
        yield from same_domain(child)


def scalar_type(one: Primitive | Fixed | Enum) -> tuple[pa.DataType, int]:
    """The Arrow type, and the kind of column that the kernel fills."""
    if isinstance(one, Enum):
        return pa.string(), 4
    logical = logical_of(one)
    if isinstance(one, Fixed):
        if logical is None:
            return pa.binary(one.size), one.size
        if logical.name == "decimal":
            return _decimal(logical)
        return (pa.string() if logical.name == "uuid" else DURATION), one.size
    if logical is None or logical.name == "uuid":
        return _PRIMITIVES[one.kind]
    if logical.name == "decimal":
        return _decimal(logical)
    if logical.name == "date":
        return pa.date32(), 4
    family, _, unit = logical.name.rpartition("-")
    if family == "time":
        return (pa.time32("ms"), 4) if unit == "millis" else (pa.time64("us"), 8)
    return pa.timestamp(_UNITS[unit], "UTC" if family == "timestamp" else None), 8


def _decimal(logical: Logical) -> tuple[pa.DataType, int]:
    if logical.precision <= 38:
        return pa.decimal128(logical.precision, logical.scale), 16
    return pa.decimal256(logical.precision, logical.scale), 32


def wider_type(union: Union) -> Primitive | None:
    """Of int with long, or float with double: the wider one."""
    values = union.values
    if len(values) != 2 or not all(isinstance(one, Primitive) and one.logical is None for one in values):
        return None
    wider = _WIDER.get(frozenset(one.kind for one in values if isinstance(one, Primitive)))
    return None if wider is None else Primitive(wider)


def item_type(one: Array | Map) -> AvroType:
    return one.items if isinstance(one, Array) else one.values


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def place(path: str) -> str:
    return f"field {path}" if path else "the schema"


def recursion(name: str, path: str) -> str:
    return f"{place(path)}: the type {name} contains itself. Recursive types have no columns and cannot be decoded"
