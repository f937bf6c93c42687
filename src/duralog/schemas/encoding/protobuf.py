"""JSON values as Protobuf messages, by Protobuf's own mapping of JSON. It is the one that other tools use, too.

A payload of Confluent's framing has the place of its message type in the file after the id: the indexes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duralog.errors import InvalidRecord, SchemaError
from duralog.schemas.avro.defaults import varint
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.protobuf_files import protobuf_needed
from duralog.schemas.protobuf_payloads import load_schema, message_type
from duralog.schemas.registered_schema import RegisteredSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor


class ProtobufMessages:
    """Messages of one type."""

    def __init__(self, schema: RegisteredSchema, catalogue: SchemaCatalogue, name: str | None) -> None:
        with protobuf_needed():
            from google.protobuf.message_factory import GetMessageClass

        file = load_schema(schema, catalogue)
        message = message_type(file, name)
        self._make: Any = GetMessageClass(message)
        self.indexes = _indexes(_path(file, message))

    def encode(self, value: Any) -> bytes:
        """Raises `InvalidRecord`."""
        from google.protobuf.json_format import ParseDict, ParseError
        from google.protobuf.message import EncodeError

        if not isinstance(value, dict):
            raise InvalidRecord(f"expected an object with the fields of {self._make.DESCRIPTOR.full_name}")
        try:
            # Fields by their names in the file, or in lowerCamelCase.
            return bytes(ParseDict(value, self._make()).SerializeToString(deterministic=True))
        except (ParseError, EncodeError, ValueError, TypeError, RecursionError) as error:
            raise InvalidRecord(str(error).strip()[:500]) from None


def _path(file: FileDescriptor, message: Descriptor) -> tuple[int, ...]:
    """Where a type is in its file. Entries of maps are not counted, as in Java."""
    steps: list[int] = []
    one: Descriptor | None = message
    while one is not None:
        around = one.containing_type
        types = list(file.message_types_by_name.values()) if around is None else list(around.nested_types)
        names = [each.full_name for each in types if not each.GetOptions().map_entry]
        if one.full_name not in names:
            raise SchemaError(f"the message type {message.full_name} is not in the schema's own file")
        steps.append(names.index(one.full_name))
        one = around
    return tuple(reversed(steps))


def _indexes(path: tuple[int, ...]) -> bytes:
    """Zigzag varints after their count; the first type of a file is a single 0."""
    return b"\x00" if path == (0,) else varint(len(path)) + b"".join(map(varint, path))
