"""Whether records of one Avro schema can be read with another, by the rules of schema resolution in its specification.

This answers for all records that the writer's schema allows, as Java's `SchemaCompatibility` does: each branch of a
writer's union must be readable. Recursive types are compared once for each pair.
"""

from __future__ import annotations

from duralog.schemas.avro.parsing import AvroSchema
from duralog.schemas.avro.schema import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    describe,
)
from duralog.schemas.compatibility.work import MAX_PROBLEMS, Work

_LONGEST_PATH = 300
_LONGEST_NAME = 100
"""In the sentences of problems."""

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def avro_problems(reader: AvroSchema, writer: AvroSchema, work: Work) -> list[str]:
    """Why the reader cannot read all that the writer may write. Empty if it can."""
    return _Check(work).problems(reader.root, writer.root, "/")


class _Check:
    def __init__(self, work: Work) -> None:
        self._answers: dict[tuple[int, int], list[str]] = {}
        """By pairs of types. A pair that is being compared is taken to be right: a recursive type ends there."""
        self._branches: dict[int, dict[str, AvroType]] = {}
        """Of the reader's unions, by what the writer's branch is mostly called, too."""
        self._work = work

    def problems(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        if pair not in self._answers:
            self._work.add()
            self._answers[pair] = []
            # Cut at every level: a type that is used twice by one that is used twice has its problems four times.
            self._answers[pair] = self._compare(reader, writer, path)[:MAX_PROBLEMS]
        return self._answers[pair]

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if isinstance(writer, Union):
            found: list[str] = []
            for branch in writer.branches:
                if len(found) < MAX_PROBLEMS:
                    found += self.problems(reader, branch, path)
            return found
        if isinstance(reader, Union):
            if id(reader) not in self._branches:
                self._branches[id(reader)] = {_short_name(branch): branch for branch in reader.branches}
            likely = self._branches[id(reader)].get(_short_name(writer))
            if likely is not None and not self.problems(likely, writer, path):
                return []
            if any(not self.problems(branch, writer, path) for branch in reader.branches):
                return []
            return [f"{path}: no branch of the reader's {_described(reader)} reads {_described(writer)}"]
        if isinstance(reader, Primitive) and isinstance(writer, Primitive):
            if reader.kind == writer.kind or reader.kind in _PROMOTIONS.get(writer.kind, ()):
                return []
        elif isinstance(reader, Array) and isinstance(writer, Array):
            return self.problems(reader.items, writer.items, _below(path, "items/"))
        elif isinstance(reader, Map) and isinstance(writer, Map):
            return self.problems(reader.values, writer.values, _below(path, "values/"))
        elif isinstance(reader, Record) and isinstance(writer, Record):
            return [*_name_problems(reader, writer, path), *self._fields(reader, writer, path)]
        elif isinstance(reader, Enum) and isinstance(writer, Enum):
            self._work.add(len(reader.symbols) + len(writer.symbols))
            return [*_name_problems(reader, writer, path), *_enum_problems(reader, writer, path)]
        elif isinstance(reader, Fixed) and isinstance(writer, Fixed):
            found = _name_problems(reader, writer, path)
            if reader.size != writer.size:
                found.append(f"{path}: fixed {reader.name} has {reader.size} bytes, and had {writer.size}")
            return found
        return [f"{path}: {_described(reader)} cannot read {_described(writer)}"]

    def _fields(self, reader: Record, writer: Record, path: str) -> list[str]:
        self._work.add(len(reader.fields) + len(writer.fields))
        written = {field.name: field for field in writer.fields}
        found: list[str] = []
        for field in reader.fields:
            if len(found) >= MAX_PROBLEMS:
                break
            self._work.add(len(field.aliases))
            below = _below(path, f"fields/{field.name}")
            source = next((written[name] for name in (field.name, *sorted(field.aliases)) if name in written), None)
            if source is not None:
                found += self.problems(field.type, source.type, _below(below, "/"))
            elif field.default is NO_DEFAULT:
                found.append(f"{below}: the writer does not have this field, and it has no default")
        return found


def _short_name(one: AvroType) -> str:
    if isinstance(one, Named):
        return one.name.rpartition(".")[2]
    return one.kind if isinstance(one, Primitive) else type(one).__name__


def _below(path: str, step: str) -> str:
    return f"{path}{step[:_LONGEST_NAME]}" if len(path) < _LONGEST_PATH else path


def _described(one: AvroType) -> str:
    return describe(one)[:_LONGEST_PATH]


def _name_problems(reader: Named, writer: Named, path: str) -> list[str]:
    # The last part counts, as in Avro's specification, or an alias in full.
    own, other = reader.name.rpartition(".")[2], writer.name.rpartition(".")[2]
    if own == other or writer.name in reader.aliases:
        return []
    return [f"{path}: the name was {writer.name}, and is {reader.name} without an alias"]


def _enum_problems(reader: Enum, writer: Enum, path: str) -> list[str]:
    known = set(reader.symbols)
    lost = [symbol for symbol in writer.symbols if symbol not in known]
    if not lost or reader.default is not None:
        return []
    return [f"{path}: enum {reader.name} lacks the symbols {', '.join(lost[:10])[:_LONGEST_PATH]}, and has no default"]
