"""Records of the coordinators' topics: how a typed key and a versioned value are framed, and what their tables share.

A key is the type's number (int16), then the key's fields; a value is its version (int16), then the value's fields. Keys
were never flexible and have one version. A null value is a tombstone: the thing that the key names is gone.

Readers must outlive writers: a type or a version that the tables do not know comes back with its bytes as they are,
and is written again as it was. Bytes after the last field of a key or a value are ignored, as Kafka 4.3.1 does.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct, decode_message, encode_message
from duralog.format.varint import Bytes

_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class RecordType:
    """A kind of record in a coordinator's topic."""

    name: str
    id: int
    key: Message
    value: Message


def record_types(*types: RecordType) -> dict[int, RecordType]:
    by_id = {record_type.id: record_type for record_type in types}
    assert len(by_id) == len(types)
    return by_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRecord:
    type_id: int
    type_name: str | None
    """None for a type that the tables do not know."""
    key: Mapping[str, Any] | bytes
    """Its fields; the bytes after the number for an unknown type."""
    version: int | None
    """Of the value; None for a tombstone, and for an unknown type whose value has no room for one."""
    value: Mapping[str, Any] | bytes | None
    """Its fields; the bytes after the version for an unknown type or version; None for a tombstone."""

    @property
    def is_unknown(self) -> bool:
        """Whether the tables do not know the type, or the version of the value."""
        return self.type_name is None or isinstance(self.value, bytes)


def decode_coordinator_record(
    types: Mapping[int, RecordType], key: Bytes | None, value: Bytes | None
) -> CoordinatorRecord:
    """The record. Positions in errors count in the key or in the value; the reason names the one."""
    if key is None:
        raise CorruptRecord("a coordinator's record has no key", expected="a key", found="null")
    type_id = _leading_int16(key, "key")
    record_type = types.get(type_id)
    if record_type is None:
        return _unknown(type_id, key, value)
    fields = _decode_part(record_type.key, 0, key)
    version = None if value is None else _leading_int16(value, "value")
    decoded_value: Mapping[str, Any] | bytes | None = None
    if value is not None and version is not None:
        if not 0 <= version <= record_type.value.last_version:
            decoded_value = bytes(value[_INT16.size :])
        else:
            decoded_value = _decode_part(record_type.value, version, value)
    return CoordinatorRecord(
        type_id=type_id,
        type_name=record_type.name,
        key=fields,
        version=version,
        value=decoded_value,
    )


def _unknown(type_id: int, key: Bytes, value: Bytes | None) -> CoordinatorRecord:
    has_version = value is not None and len(value) >= _INT16.size
    return CoordinatorRecord(
        type_id=type_id,
        type_name=None,
        key=bytes(key[_INT16.size :]),
        version=_leading_int16(value, "value") if value is not None and has_version else None,
        value=None if value is None else bytes(value[_INT16.size if has_version else 0 :]),
    )


def encode_coordinator_record(types: Mapping[int, RecordType], record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and the value."""
    record_type = types.get(record.type_id)
    key = _INT16.pack(record.type_id) + _encode_part(record_type.key if record_type else None, 0, record.key)
    if record.value is None:
        return key, None
    if record.version is None:
        raise InvalidRecord(f"the value of a record of type {record.type_id} needs a version")
    value = _encode_part(record_type.value if record_type else None, record.version, record.value)
    return key, _INT16.pack(record.version) + value


def _decode_part(message: Message, version: int, data: Bytes) -> dict[str, Any]:
    try:
        return decode_message(message, version, data, _INT16.size, may_trail=True)
    except CorruptRecord as error:
        raise CorruptRecord(
            f"{message.name} v{version}: {error.reason}",
            fault=error.fault,
            position=error.position,
            expected=error.expected,
            found=error.found,
        ) from None


def _encode_part(message: Message | None, version: int, part: Mapping[str, Any] | bytes) -> bytes:
    if isinstance(part, bytes):
        return part
    if message is None:
        raise InvalidRecord("the fields of a record of unknown type cannot be encoded")
    return encode_message(message, version, part)


def _leading_int16(data: Bytes, what: str) -> int:
    if len(data) < _INT16.size:
        raise CorruptRecord(
            f"a coordinator record's {what} is too short",
            fault=Fault.FIELD_LENGTH,
            position=0,
            expected="2 bytes or more",
            found=f"{len(data)} bytes",
        )
    number: int = _INT16.unpack_from(data)[0]
    return number


def group_key(name: str, *more: Field) -> Message:
    return Message(name, (Field("group_id", "string"), *more), flexible_since=None)


def member_key(name: str) -> Message:
    return group_key(name, Field("member_id", "string"))


TOPIC_PARTITIONS = Struct((Field("topic_id", "uuid"), Field("partitions", ArrayOf("int32"))))
MEMBER_ASSIGNMENT = (Field("topic_partitions", ArrayOf(TOPIC_PARTITIONS)),)
MEMBER_EPOCHS = (
    Field("member_epoch", "int32"),
    Field("previous_member_epoch", "int32"),
    Field("state", "int8"),
)
TARGET_ASSIGNMENT_METADATA = (
    Field("assignment_epoch", "int32"),
    Field("assignment_timestamp", "int64", tag=0, default=0),
)
