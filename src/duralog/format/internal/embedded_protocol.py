"""What Kafka's consumers put into the bytes that a classic group hands around: subscriptions and assignments.

Both begin with their version. A version only ever adds fields at the end: of one that is newer than the tables, the
fields that are known are read, and the rest is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from duralog.errors import CorruptRecord, Fault
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct, decode_message, encode_message

_INT16 = struct.Struct(">h")
_TOPIC_PARTITIONS = ArrayOf(Struct((Field("topic", "string"), Field("partitions", ArrayOf("int32")))))

SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    (
        Field("topics", ArrayOf("string")),
        Field("user_data", "bytes", nullable=True),
        Field("owned_partitions", _TOPIC_PARTITIONS, since=1),
        Field("generation_id", "int32", since=2),
        Field("rack_id", "string", since=3, nullable=True),
    ),
    last_version=3,
    flexible_since=None,
)
ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    (Field("assigned_partitions", _TOPIC_PARTITIONS), Field("user_data", "bytes", nullable=True)),
    last_version=3,
    flexible_since=None,
)


def embedded_version(data: bytes) -> int:
    """The version that the bytes begin with. Raises CorruptRecord if there is none."""
    version: int = _INT16.unpack_from(data)[0] if len(data) >= _INT16.size else -1
    if version < 0:
        raise CorruptRecord(
            "the bytes of a consumer begin with no version",
            fault=Fault.FIELD_LENGTH,
            position=0,
            expected="a version of 0 or more",
            found=data[: _INT16.size].hex() or "nothing",
        )
    return version


def decode_embedded(message: Message, data: bytes) -> dict[str, Any]:
    """The fields that are known. Raises CorruptRecord for bytes that are not such a message."""
    version = min(embedded_version(data), message.last_version)
    return decode_message(message, version, data, _INT16.size, may_trail=True)


def encode_embedded(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """In this version, or in the last one that is known if that is older."""
    version = min(version, message.last_version)
    return _INT16.pack(version) + encode_message(message, version, fields)
