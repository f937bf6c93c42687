"""Protobuf payloads: decoded with the reader's message type, which skips fields that it does not know.

The writer's schema only says which of its message types a payload has. ptars decodes whole columns. Where it refuses
one, protobuf's own parser finds the bad rows, and ptars decodes the rest, if need be as protobuf writes it again.

The columns' types: enums are their names (a number that has none is its digits), well-known timestamps have
microseconds, unsigned numbers are signed ones that hold them, a message that contains itself is kept as bytes there. Of
a oneof that was written twice with different members, which no serializer does, all of them are shown.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from duralog.errors import SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.column_types import projected, pruned_type
from duralog.schemas.frames import MessagePlace
from duralog.schemas.payloads import Bytes, Decoded, Int64s, Payloads, binary_column, good
from duralog.schemas.protobuf_files import (
    DESCRIPTOR_SET_PREFIX,
    MAIN_FILE,
    compile_protobuf,
    descriptor_set_text,
    load_files,
    protobuf_needed,
    read_descriptor_set,
)
from duralog.schemas.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

MAX_FIELDS = 20_000
"""Of a message type with those of its messages: a small file can nest millions."""

_MOST_WRITERS = 100
"""Schemas whose message types a decoder remembers."""

_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
"""In microseconds: the years 1 to 9999, what a well-known timestamp may be."""


class ProtobufFormat:
    """The decoder of a reader's message type."""

    def __init__(
        self, reader: RegisteredSchema, catalogue: SchemaCatalogue, columns: Sequence[str] | None, message: str | None
    ) -> None:
        self._catalogue = catalogue
        self._id = reader.id
        file = load_schema(reader, catalogue)
        self._own = _Types(file)
        self._writers: dict[int | UUID, _Types] = {}
        self._message = message_type(file, message)
        self._payloads = ProtobufPayloads(self._message, columns)
        self.arrow_type = self._payloads.arrow_type

    def payloads(self, writer: RegisteredSchema | None, place: MessagePlace | None) -> Payloads:
        """The reader's decoder, if the writer's message type is the reader's."""
        if place is None:
            return self._payloads
        names = self._types(writer).named(place)
        if not names:
            raise SchemaError(f"it has no message type {_shown(place)}")
        if self._message.full_name not in names:
            raise SchemaError(f"the message type is {names[0]}, not {self._message.full_name}")
        return self._payloads

    def _types(self, writer: RegisteredSchema | None) -> _Types:
        """Kept, as payloads may name another type each."""
        if writer is None or (writer.id is not None and writer.id == self._id):
            return self._own
        id_ = writer.guid if writer.id is None else writer.id
        known = None if id_ is None else self._writers.get(id_)
        if known is None:
            known = _Types(load_schema(writer, self._catalogue))
            if id_ is not None and len(self._writers) < _MOST_WRITERS:
                self._writers[id_] = known
        return known


class _Types:
    """The message types of a file."""

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file

    def named(self, place: MessagePlace) -> list[str]:
        """The full names of those that a payload may mean, the likeliest first."""
        if isinstance(place, str):
            found = self._file.message_types_by_name.get(place)
            return [] if found is None else [found.full_name]
        if isinstance(place, int):
            return self._sorted[place : place + 1]
        # Python's serializer counts the entry types of maps among the nested types, Java's does not.
        return [
            each.full_name for entries in (False, True) if (each := _at(self._outermost, place, entries)) is not None
        ]

    @cached_property
    def _outermost(self) -> list[Descriptor]:
        return list(self._file.message_types_by_name.values())

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(_by_name(self._file))


class ProtobufPayloads:
    """Payloads of one message type."""

    def __init__(self, message: Descriptor, columns: Sequence[str] | None) -> None:
        with protobuf_needed():
            from google.protobuf.message_factory import GetMessageClass
            from ptars import HandlerPool, PtarsConfig

        _check_size(message)
        _check_syntax(message.file)
        config = PtarsConfig(timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string")
        self._handler: Any = HandlerPool([message.file], config=config).get_for_message(message)
        self._parse: Any = GetMessageClass(message).FromString
        self._found = pa.struct(list(self._handler.schema()))
        self._pruned = self._found if columns is None else pruned_type(self._found, columns)
        _check_no_groups(message, self._pruned, "")
        self.arrow_type = _signed(self._pruned)

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        """The payloads at these positions."""
        column = binary_column(data, starts, ends).cast(pa.binary())
        try:
            return good(self._column(column))
        except SchemaError:
            return self._with_bad_rows(column)

    def _column(self, column: pa.Array) -> pa.Array:
        try:
            batch = self._handler.array_to_record_batch(column)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # A panic of Rust is not an Exception.
            raise SchemaError(str(error)) from None
        if not self._found.num_fields:
            return pa.array([{}] * len(column), self._found)
        values = projected(pa.StructArray.from_arrays(batch.columns, fields=list(self._found)), self._pruned)
        _check_times(values)
        return values if values.type == self.arrow_type else values.cast(self.arrow_type)

    def _with_bad_rows(self, column: pa.Array) -> Decoded:
        reasons: list[str | None] = []
        for each in column:
            try:
                self._parse(each.as_py())
            except Exception as error:
                reasons.append(f"damaged Protobuf payload: {str(error).rpartition(': ')[2]}")
            else:
                reasons.append(None)
        kept = np.flatnonzero([reason is None for reason in reasons])
        values = self._column_of_good(column, kept, reasons)
        return Decoded(values, pa.array(reasons, pa.string()))

    def _column_of_good(self, column: pa.Array, rows: Int64s, reasons: list[str | None]) -> pa.Array:
        """All rows of the column, null where there is a reason; adds reasons where the two parsers disagree."""
        places = np.full(len(column), -1, np.int64)
        pieces: list[pa.Array] = []
        count = 0
        pending = [rows]
        while pending:
            some = pending.pop()
            if not len(some):
                continue
            try:
                pieces.append(self._column(column.take(pa.array(some))))
            except SchemaError as error:
                if len(some) > 1:
                    pending += [some[: len(some) // 2], some[len(some) // 2 :]]
                    continue
                rewritten = self._rewritten(column[some[0]].as_py())
                if rewritten is None:
                    reasons[some[0]] = f"damaged Protobuf payload: {str(error)[:200]}"
                    continue
                pieces.append(rewritten)
            places[some] = np.arange(count, count + len(some))
            count += len(some)
        if not pieces:
            return pa.nulls(len(column), self.arrow_type)
        return pa.concat_arrays(pieces).take(pa.array(places, mask=places < 0))

    def _rewritten(self, payload: bytes) -> pa.Array | None:
        """A payload as protobuf writes it: without what ptars does not take, e.g. entries of maps without a value."""
        try:
            return self._column(pa.array([self._parse(payload).SerializePartialToString()], pa.binary()))
        except SchemaError:
            return None


def compiled(schema: RegisteredSchema, catalogue: SchemaCatalogue) -> RegisteredSchema:
    """The schema as a descriptor set, with its imports: a task that gets it needs no compiler."""
    if schema.text.startswith(DESCRIPTOR_SET_PREFIX):
        return schema
    return replace(schema, text=descriptor_set_text(_compiled(schema, catalogue)), references=())


def message_at(schema: RegisteredSchema, catalogue: SchemaCatalogue, place: MessagePlace) -> str | None:
    """The full name of the message type at a place of a schema, None if there is none; raises `SchemaError`."""
    return next(iter(_Types(load_schema(schema, catalogue)).named(place)), None)


def load_schema(schema: RegisteredSchema, catalogue: SchemaCatalogue) -> FileDescriptor:
    """The file of a schema, with its imports in a pool of its own; raises `SchemaError`."""
    if schema.text.startswith(DESCRIPTOR_SET_PREFIX):
        return load_files(read_descriptor_set(base64.b64decode(schema.text[len(DESCRIPTOR_SET_PREFIX) :])))
    return load_files(_compiled(schema, catalogue))


def _compiled(schema: RegisteredSchema, catalogue: SchemaCatalogue) -> FileDescriptorSet:
    return compile_protobuf(schema.text, {name: each.text for name, each in catalogue.resolve(schema).items()})


def message_type(file: FileDescriptor, name: str | None) -> Descriptor:
    """The type of a full name, or the first of the file; raises `SchemaError`."""
    first = next(iter(file.message_types_by_name.values()), None)
    found = first if name is None else _by_name(file).get(name)
    if found is None:
        names = sorted(_by_name(file)) or ["none"]
        raise SchemaError(f"the Protobuf schema has no message type {name or ''!r}; it has {', '.join(names[:20])}")
    return found


def _by_name(file: FileDescriptor) -> dict[str, Descriptor]:
    found: dict[str, Descriptor] = {}
    pending = list(file.message_types_by_name.values())
    while pending:
        each = pending.pop()
        found[each.full_name] = each
        pending += each.nested_types
    return found


def _shown(place: MessagePlace) -> str:
    if isinstance(place, str):
        return f"{place[:100]!r} outside of other types"
    return f"at {'.'.join(map(str, place))}" if isinstance(place, tuple) else f"with the number {place}"


def _at(types: list[Descriptor], path: tuple[int, ...], entries: bool) -> Descriptor | None:
    """The message type at a place: the types of a file, and those of a type, in the order of their text."""
    found = None
    for place in path:
        if place >= len(types):
            return None
        found = types[place]
        types = [each for each in found.nested_types if entries or not each.GetOptions().map_entry]
    return found


def _check_size(message: Descriptor) -> None:
    count = 0

    def visit(each: Descriptor, inside: tuple[str, ...]) -> None:
        nonlocal count
        for field in each.fields:
            count += 1
            if count > MAX_FIELDS:
                raise SchemaError(
                    f"message type {message.full_name} has more than {MAX_FIELDS:,} fields, nested ones too"
                )
            inner = field.message_type
            if inner is not None and inner.full_name not in inside:
                visit(inner, (*inside, inner.full_name))

    visit(message, (message.full_name,))


def _check_syntax(file: FileDescriptor) -> None:
    """Refuses editions, at which ptars panics."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = FileDescriptorProto()
    file.CopyToProto(found)
    if found.syntax == "editions":
        name = "the Protobuf schema" if file.name == MAIN_FILE else f"the Protobuf import {file.name!r}"
        raise SchemaError(f"{name} is written in an edition: only proto2 and proto3 are supported")
    for each in file.dependencies:
        _check_syntax(each)


def _check_no_groups(message: Descriptor, type_: pa.DataType, path: str) -> None:
    """Refuses fields of the type that are groups of proto2: ptars takes them for missing."""
    while pa.types.is_list(type_) or pa.types.is_map(type_):
        if pa.types.is_map(type_):
            type_, message = type_.item_type, message.fields_by_name["value"].message_type
        else:
            type_ = type_.value_type
    if not pa.types.is_struct(type_) or message is None:
        return
    for each in type_:
        field = message.fields_by_name.get(each.name)
        if field is None:
            continue
        if field.type == field.TYPE_GROUP:
            raise SchemaError(f"field {path}{each.name} is a group, which is not supported: choose other columns")
        if field.message_type is not None:
            _check_no_groups(field.message_type, each.type, f"{path}{each.name}.")


def _check_times(values: pa.Array) -> None:
    """Refuses timestamps beyond Protobuf's own range: ptars makes the nearest one that fits of them."""
    if pa.types.is_timestamp(values.type):
        found = pc.min_max(values.cast(pa.int64())).as_py()
        if found["min"] is not None and not _FIRST_TIME <= found["min"] <= found["max"] <= _LAST_TIME:
            raise SchemaError("a timestamp is not between the years 1 and 9999")
    elif pa.types.is_struct(values.type):
        for child in values.flatten():
            _check_times(child)
    elif pa.types.is_list(values.type):
        _check_times(values.flatten())
    elif pa.types.is_map(values.type):
        _check_times(values.items)


def _signed(type_: pa.DataType) -> pa.DataType:
    """The type without unsigned numbers, which neither Spark nor the tables of lakes have."""
    if pa.types.is_uint64(type_):
        return pa.decimal128(20)
    if pa.types.is_uint32(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_signed(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_signed(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(
            type_.key_field.with_type(_signed(type_.key_type)), type_.item_field.with_type(_signed(type_.item_type))
        )
    return type_
