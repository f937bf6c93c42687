"""Whether messages of one Protobuf schema can be read with another, by the rules that Confluent's registry documents.

What matters is the wire: numbers of fields and kinds of values. Names, new messages and new or removed fields do not,
but for required ones and for fields of a oneof, whose meaning would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from duralog.schemas.compatibility.work import MAX_PROBLEMS

_LONGEST_NAME = 100
"""In the sentences of problems."""

_LABEL_REQUIRED = 2
_LABEL_REPEATED = 3
_TYPE_GROUP, _TYPE_MESSAGE, _TYPE_BYTES, _TYPE_STRING, _TYPE_ENUM = 10, 11, 12, 9, 14

_KINDS = {
    # Types that a reader may exchange: they look the same on the wire.
    **dict.fromkeys((5, 13, 3, 4, 8, _TYPE_ENUM), "a varint"),
    **dict.fromkeys((17, 18), "a zigzag varint"),
    **dict.fromkeys((7, 15), "32 bits"),
    **dict.fromkeys((6, 16), "64 bits"),
    **dict.fromkeys((_TYPE_STRING, _TYPE_BYTES), "text or bytes"),
    1: "a double",
    2: "a float",
    _TYPE_MESSAGE: "a message",
    _TYPE_GROUP: "a group",
}

_Message = Any
"""A `DescriptorProto`."""


def parse_protobuf(text: str, imports: Mapping[str, str]) -> Any:
    """The `FileDescriptorProto` of a schema, text or descriptor; raises `SchemaError`."""
    from duralog.schemas.protobuf_files import compile_protobuf, load_files

    found = compile_protobuf(text, imports)
    load_files(found)
    return found.file[-1]


def protobuf_problems(reader: Any, writer: Any) -> list[str]:
    """Why the reader cannot read all that the writer may write: of two `FileDescriptorProto`."""
    found: list[str] = []
    if reader.package != writer.package:
        found.append(f"the package changed from {writer.package!r} to {reader.package!r}")
    read = dict(_messages(reader.message_type))
    for names, message in _messages(writer.message_type):
        path = ".".join(name[:_LONGEST_NAME] for name in names)
        if names not in read:
            found.append(f"message {path} was removed")
        else:
            found += islice(_message_problems(read[names], message, path), MAX_PROBLEMS)
        if len(found) >= MAX_PROBLEMS:
            break
    return found[:MAX_PROBLEMS]


def _messages(messages: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], _Message]]:
    """Each with the names of the messages around it and its own."""
    for message in messages:
        names = (*above, message.name)
        yield names, message
        yield from _messages(message.nested_type, names)


def _message_problems(reader: _Message, writer: _Message, path: str) -> Iterator[str]:
    read = {field.number: field for field in reader.field}
    written = {field.number: field for field in writer.field}
    for number, field in read.items():
        if number not in written and field.label == _LABEL_REQUIRED:
            yield f"{path}.{field.name[:_LONGEST_NAME]}: a required field was added"
    for number, field in written.items():
        there = read.get(number)
        if there is None:
            if field.label == _LABEL_REQUIRED:
                yield f"{path}.{field.name[:_LONGEST_NAME]}: a required field was removed"
            elif _oneof(field) is not None:
                yield f"{path}.{field.name[:_LONGEST_NAME]}: a field of a oneof was removed"
        else:
            yield from _field_problems(there, field, f"{path}.{field.name[:_LONGEST_NAME]}")
    yield from _oneof_problems(reader, writer, path)


def _field_problems(reader: Any, writer: Any, path: str) -> Iterator[str]:
    one, other = _KINDS.get(reader.type, ""), _KINDS.get(writer.type, "")
    if one != other:
        yield f"{path}: the value was {other or 'unknown'}, and is {one or 'unknown'}"
    elif reader.type == _TYPE_MESSAGE and _last(reader.type_name) != _last(writer.type_name):
        yield f"{path}: the message was {_last(writer.type_name)}, and is {_last(reader.type_name)}"
    # Of repeated text, bytes and messages, a reader of a single value takes the last.
    has_changed = (reader.label == _LABEL_REPEATED) != (writer.label == _LABEL_REPEATED)
    if has_changed and writer.type not in (_TYPE_STRING, _TYPE_BYTES, _TYPE_MESSAGE):
        yield f"{path}: a number became repeated or single"


def _oneof_problems(reader: _Message, writer: _Message, path: str) -> Iterator[str]:
    """Two fields that could be set together must not come into one oneof."""
    before = {field.number: _oneof(field) for field in writer.field}
    moved: dict[int, list[int | None]] = {}
    for field in reader.field:
        oneof = _oneof(field)
        if oneof is not None and field.number in before:
            moved.setdefault(oneof, []).append(before[field.number])
    for oneof, old in moved.items():
        if len(old) > 1 and (None in old or len(set(old)) > 1):
            name = reader.oneof_decl[oneof].name[:_LONGEST_NAME]
            yield f"{path}: several fields were moved into the oneof {name}"


def _oneof(field: Any) -> int | None:
    # An optional field of proto3 is a oneof of its own, which does not count.
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _last(name: str) -> str:
    return name.rpartition(".")[2]
