"""A writer's schema against a reader's: what to do with each value, as Avro's specification resolves them.

The result is a tree of steps in the order of the writer's bytes. `program` makes instructions of it for the kernel;
`plain` follows it directly. Where Avro leaves a choice, Java's library decides: in a union of the reader, a branch of
the same type and name comes before one that the value could be promoted to; the names of records matter only there.

Logical types are those of the reader. Times of a coarser unit are multiplied; other logical types that differ are
refused, since their numbers would mean something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.errors import SchemaError
from duralog.schemas.avro.defaults import encode_default
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
    is_null,
    logical_of,
)
from duralog.schemas.avro.shapes import (
    MAX_TYPES,
    Items,
    Scalar,
    Shape,
    Struct,
    item_type,
    join,
    place,
    recursion,
    wider_type,
)

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MAX_COMPARISONS = 500_000
"""Of a writer's branches with a reader's, in all unions. One union may have 700; its program grows with the square."""
_PER_UNIT = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A value without parts."""

    writer: Primitive | Fixed | Enum
    shape: Scalar
    factor: int = 1
    symbols: tuple[int, ...] = ()
    """Of an enum: the reader's number of each symbol of the writer, or -1."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadRecord:
    shape: Struct
    steps: tuple[tuple[str, Step], ...]
    """With the names of the fields: the reader's, or the writer's if it is skipped."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadItems:
    shape: Items
    item: Step
    is_empty: bool
    """Items have no bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadUnion:
    branches: tuple[Step | None, ...]
    """None: the reader has no such type, and a value of it makes the row bad."""


@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """The value of a nullable shape."""

    shape: Shape
    step: Step


@dataclass(frozen=True, slots=True, eq=False)
class SetNull:
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One member of a union that is a struct; the others are null. Without a step, it was not asked for."""

    shape: Struct
    name: str
    step: Step


@dataclass(frozen=True, slots=True, eq=False)
class Default:
    """A field that the writer does not have: bytes to read instead, written with the reader's schema."""

    data: bytes
    step: Step


@dataclass(frozen=True, slots=True, eq=False)
class Skip:
    writer: AvroType


Step = Read | ReadRecord | ReadItems | ReadUnion | Present | SetNull | Member | Default | Skip


class _TooLarge(Exception):
    """Not a `SchemaError`: that one only rules out a branch."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the schema has more than {what}")


def resolve(writer: AvroType, reader: AvroType, shape: Shape) -> Step:
    """How values of `writer` become `shape`, which was made of `reader`. Raises `SchemaError` if they cannot."""
    try:
        return _Resolver().any(writer, reader, shape, "")
    except _TooLarge as error:
        raise SchemaError(str(error)) from None


class _Resolver:
    def __init__(self) -> None:
        self._left = MAX_TYPES
        self._comparisons_left = MAX_COMPARISONS
        self._inside: list[str] = []

    def any(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        if not isinstance(writer, Union):
            return self._into(writer, reader, shape, path)
        branches: list[Step | None] = []
        refusal: SchemaError | None = None
        depth = len(self._inside)
        for branch in writer.branches:
            try:
                branches.append(self._into(branch, reader, shape, path))
            except SchemaError as error:
                del self._inside[depth:]
                branches.append(None)
                refusal = error
        # A row may have a branch that the reader does not know. That all of them would is a mistake.
        tried = [
            step for step, branch in zip(branches, writer.branches, strict=True) if not is_null(branch)
        ] or branches
        if refusal is not None and not any(tried):
            raise refusal
        return ReadUnion(tuple(branches))

    def _into(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        """`writer` is not a union."""
        if not isinstance(reader, Union):
            return self._plain(writer, reader, shape, path)
        if is_null(writer) and reader.has_null:
            return SetNull(shape)
        self._comparisons_left -= len(reader.branches)
        if self._comparisons_left < 0:
            raise _TooLarge(f"{MAX_COMPARISONS:,} pairs of branches in its unions")
        values = reader.values
        is_one_column = len(values) == 1 or wider_type(reader) is not None
        candidates = sorted(range(len(values)), key=lambda number: _distance(writer, values[number]))
        refusal = None
        depth = len(self._inside)
        for number in candidates:
            try:
                if is_one_column:
                    step = self._plain(writer, values[number], shape, path)
                else:
                    step = self._member(writer, values[number], number, shape, path)
            except SchemaError as error:
                del self._inside[depth:]
                refusal = refusal or error
            else:
                return Present(shape, step) if shape.is_nullable else step
        if refusal is None or len(candidates) > 1:
            refusal = _mismatch(writer, reader, path)
        raise refusal

    def _member(self, writer: AvroType, branch: AvroType, number: int, shape: Shape, path: str) -> Step:
        """Into the member of a union that has several."""
        assert isinstance(shape, Struct)
        name = f"member{number}"
        member = shape.fields.get(name)
        if member is None:
            _check(writer, branch, path)
            return Member(shape, name, self.skip(writer, path))
        inner = self._plain(writer, branch, member, join(path, name))
        return Member(shape, name, Present(member, inner) if member.is_nullable else inner)

    def _plain(self, writer: AvroType, reader: AvroType, shape: Shape, path: str) -> Step:
        """Neither is a union."""
        self._count()
        _check(writer, reader, path)
        if isinstance(writer, Record):
            assert isinstance(reader, Record)
            assert isinstance(shape, Struct)
            return self._record(writer, reader, shape, path)
        if isinstance(writer, Array | Map):
            assert isinstance(reader, Array | Map)
            assert isinstance(shape, Items)
            inner = item_type(writer)
            item = self.any(inner, item_type(reader), shape.item, path)
            return ReadItems(shape, item, isinstance(writer, Array) and is_empty(inner))
        assert isinstance(shape, Scalar)
        assert not isinstance(writer, Union)
        if isinstance(writer, Enum):
            assert isinstance(reader, Enum)
            return Read(writer, shape, symbols=_symbols(writer, reader))
        return Read(writer, shape, _factor(writer, reader, path))

    def _record(self, writer: Record, reader: Record, shape: Struct, path: str) -> Step:
        if writer.name in self._inside:
            raise SchemaError(recursion(writer.name, path))
        self._inside.append(writer.name)
        targets = _matched(writer, reader)
        steps: list[tuple[str, Step]] = []
        for one in writer.fields:
            target = targets.get(one.name)
            if target is None or target.name not in shape.fields:
                steps.append((one.name, self.skip(one.type, join(path, one.name))))
            else:
                name = target.name
                steps.append((name, self.any(one.type, target.type, shape.fields[name], join(path, name))))
        known = {target.name for target in targets.values()}
        for target in reader.fields:
            if target.name not in known and target.name in shape.fields:
                steps.append((target.name, self._default(target, shape.fields[target.name], join(path, target.name))))
        self._inside.pop()
        return ReadRecord(shape, tuple(steps))

    def _default(self, target: Field, shape: Shape, path: str) -> Step:
        if target.default is NO_DEFAULT:
            raise SchemaError(f"{place(path)}: the writer's schema has no such field, and the reader's has no default")
        data = encode_default(target.type, target.default, path)
        if target.default is None and isinstance(target.type, Union):
            return SetNull(shape)
        inside, self._inside = self._inside, []
        step = self.any(target.type, target.type, shape, path)
        self._inside = inside
        return Default(data, step)

    def skip(self, writer: AvroType, path: str) -> Step:
        self._walk(writer, path)
        return Skip(writer)

    def _walk(self, writer: AvroType, path: str) -> None:
        """Make sure that a type ends."""
        self._count()
        parts: Sequence[AvroType] = ()
        if isinstance(writer, Record):
            if writer.name in self._inside:
                raise SchemaError(recursion(writer.name, path))
            self._inside.append(writer.name)
            for one in writer.fields:
                self._walk(one.type, join(path, one.name))
            self._inside.pop()
        elif isinstance(writer, Union):
            parts = writer.branches
        elif isinstance(writer, Array | Map):
            parts = (item_type(writer),)
        for part in parts:
            self._walk(part, path)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge(f"{MAX_TYPES:,} types")


def is_empty(one: AvroType) -> bool:
    """Whether its values have no bytes at all. Others have at least one. REQUIRES: the type does not contain itself."""
    if isinstance(one, Record):
        return all(is_empty(inner.type) for inner in one.fields)
    return is_null(one) or (isinstance(one, Fixed) and one.size == 0)


def _matched(writer: Record, reader: Record) -> dict[str, Field]:
    """The reader's field for each of the writer's that it has: by name, or else by an alias."""
    by_name = {one.name: one for one in reader.fields}
    found = {one.name: by_name[one.name] for one in writer.fields if one.name in by_name}
    for target in reader.fields:
        if target.name not in found:
            renamed = next(
                (one.name for one in writer.fields if one.name in target.aliases and one.name not in found), None
            )
            if renamed is not None:
                found[renamed] = target
    return found


def _check(writer: AvroType, reader: AvroType, path: str) -> None:
    """Whether the types fit, their parts aside."""
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        fits = writer.kind == reader.kind or reader.kind in _PROMOTIONS.get(writer.kind, ())
    elif isinstance(writer, Fixed) and isinstance(reader, Fixed):
        fits = writer.size == reader.size and _is_named(writer, reader)
    elif isinstance(writer, Enum) and isinstance(reader, Enum):
        fits = _is_named(writer, reader)
    else:
        fits = type(writer) is type(reader)
    if not fits:
        raise _mismatch(writer, reader, path)


def _is_named(writer: Fixed | Enum | Record, reader: Fixed | Enum | Record) -> bool:
    name = writer.name.rpartition(".")[2]
    names = {one.rpartition(".")[2] for one in reader.aliases}
    return writer.name in reader.aliases or name == reader.name.rpartition(".")[2] or name in names


def _distance(writer: AvroType, reader: AvroType) -> int:
    """Which branch of a union comes first: the same full name, an alias, the same name in another namespace, others."""
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return 0 if writer.kind == reader.kind else 3
    if type(writer) is not type(reader):
        return 3
    if not (isinstance(writer, Fixed | Enum | Record) and isinstance(reader, Fixed | Enum | Record)):
        return 0
    if writer.name == reader.name:
        return 0
    if writer.name in reader.aliases:
        return 1
    return 2 if _is_named(writer, reader) else 3


def _symbols(writer: Enum, reader: Enum) -> tuple[int, ...]:
    numbers = {symbol: number for number, symbol in enumerate(reader.symbols)}
    default = -1 if reader.default is None else numbers[reader.default]
    return tuple(numbers.get(symbol, default) for symbol in writer.symbols)


def _factor(writer: AvroType, reader: AvroType, path: str) -> int:
    """What to multiply by. 1 if the numbers mean the same, or if one of the schemas does not say what they mean."""
    old, new = logical_of(writer), logical_of(reader)
    if old is None or new is None or old == new:
        return 1
    if old.name == new.name == "decimal" and old.scale == new.scale and old.precision <= new.precision:
        return 1
    family, _, unit = old.name.rpartition("-")
    new_family, _, new_unit = new.name.rpartition("-")
    if family == new_family and unit in _PER_UNIT and new_unit in _PER_UNIT:
        factor, rest = divmod(_PER_UNIT[new_unit], _PER_UNIT[unit])
        if rest == 0:
            return factor
    raise _mismatch(writer, reader, path)


def _mismatch(writer: AvroType, reader: AvroType, path: str) -> SchemaError:
    return SchemaError(f"{place(path)}: written as {describe(writer)}, which cannot be read as {describe(reader)}")
