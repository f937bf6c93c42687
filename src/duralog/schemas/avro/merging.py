"""A reader's schema with the fields that only writers' schemas have: for tables that keep every column.

Avro's own rules skip them. Here they are fields that may be null, after those of the reader. What both have keeps the
reader's type.
"""

from __future__ import annotations

from collections.abc import Sequence

from duralog.schemas.avro.schema import Array, AvroType, Field, Map, Primitive, Record, Union


def with_fields_of(reader: AvroType, writers: Sequence[AvroType]) -> AvroType:
    """The reader's type; a field that several writers have is that of the first one."""
    merge = _Merge()
    for writer in writers:
        reader = merge.types(reader, writer)
    return reader


class _Merge:
    def __init__(self) -> None:
        self._made: dict[tuple[int, int], Record] = {}
        """A record may be used in many places, or contain itself."""
        self._kept: list[tuple[Record, Record]] = []
        """Their numbers stay theirs."""

    def types(self, one: AvroType, other: AvroType) -> AvroType:
        if isinstance(one, Record) and isinstance(other, Record):
            return self._records(one, other)
        if isinstance(one, Array) and isinstance(other, Array):
            return Array(self.types(one.items, other.items))
        if isinstance(one, Map) and isinstance(other, Map):
            return Map(self.types(one.values, other.values))
        if isinstance(one, Union):
            inner = _only_value(other)
            if inner is None or len(one.values) != 1:
                return one
            return Union(tuple(self.types(each, inner) if each is one.values[0] else each for each in one.branches))
        inner = _only_value(other) if isinstance(other, Union) else None
        return one if inner is None else self.types(one, inner)

    def _records(self, one: Record, other: Record) -> Record:
        key = id(one), id(other)
        if key in self._made:
            return self._made[key]
        made = self._made[key] = Record(one.name, one.aliases)
        self._kept.append((one, other))
        others = {each.name: each for each in other.fields}
        fields = []
        for field in one.fields:
            known = {field.name, *field.aliases} & others.keys()
            found = [others.pop(name) for name in sorted(known)]
            type_ = self.types(field.type, found[0].type) if found else field.type
            fields.append(Field(field.name, type_, field.aliases, field.default))
        fields += [Field(each.name, _nullable(each.type), each.aliases, None) for each in others.values()]
        made.fields = tuple(fields)
        return made


def _only_value(one: AvroType) -> AvroType | None:
    """The type of a value that is not null, if there is one."""
    if not isinstance(one, Union):
        return one
    return one.values[0] if len(one.values) == 1 else None


def _nullable(one: AvroType) -> AvroType:
    null = Primitive("null")
    if isinstance(one, Union):
        return Union((null, *one.values))
    return one if one == null else Union((null, one))
