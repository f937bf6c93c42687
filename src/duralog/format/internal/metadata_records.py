"""Records of the KRaft metadata log, `__cluster_metadata`, and of its snapshots.

They have no key. A value is framed by three unsigned varints, the frame's version (1), the record type's number and the
record's version, then come the fields, always in the flexible encoding. A reader applies the newest snapshot, then the
log after it, and passes over types that it does not know: those come back with their bytes, and so do newer versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct, decode_message, encode_message
from duralog.format.varint import Bytes, decode_unsigned_varint, encode_unsigned_varint

FRAME_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecord:
    type_id: int
    type_name: str | None
    """None for a type that the tables do not know."""
    version: int
    fields: Mapping[str, Any] | bytes
    """The bytes after the frame for an unknown type or version."""


def decode_metadata_record(value: Bytes | None) -> MetadataRecord:
    if value is None:
        raise CorruptRecord("a metadata record has no value", expected="a value", found="null")
    frame_version, at = decode_unsigned_varint(value, 0, len(value))
    if frame_version != FRAME_VERSION:
        raise CorruptRecord(
            "a metadata record has an unknown frame version",
            fault=Fault.FIELD_VALUE,
            position=0,
            expected=FRAME_VERSION,
            found=frame_version,
        )
    type_id, at = decode_unsigned_varint(value, at, len(value))
    version, at = decode_unsigned_varint(value, at, len(value))
    message = METADATA_TYPES.get(type_id)
    if message is None or version > message.last_version:
        fields: Mapping[str, Any] | bytes = bytes(value[at:])
    else:
        fields = decode_message(message, version, value, at)
    return MetadataRecord(
        type_id=type_id, type_name=None if message is None else message.name, version=version, fields=fields
    )


def encode_metadata_record(record: MetadataRecord) -> bytes:
    frame = b"".join(map(encode_unsigned_varint, (FRAME_VERSION, record.type_id, record.version)))
    if isinstance(record.fields, bytes):
        return frame + record.fields
    message = METADATA_TYPES.get(record.type_id)
    if message is None:
        raise InvalidRecord("the fields of a record of unknown type cannot be encoded")
    return frame + encode_message(message, record.version, record.fields)


_END_POINTS = Field(
    "end_points",
    ArrayOf(
        Struct(
            (
                Field("name", "string"),
                Field("host", "string"),
                Field("port", "uint16"),
                Field("security_protocol", "int16"),
            )
        )
    ),
)
_FEATURES = Field(
    "features",
    ArrayOf(
        Struct(
            (
                Field("name", "string"),
                Field("min_supported_version", "int16"),
                Field("max_supported_version", "int16"),
            )
        )
    ),
)
_INT32S = ArrayOf("int32")
_UUIDS = ArrayOf("uuid")

METADATA_TYPES: dict[int, Message] = {
    0: Message(
        "REGISTER_BROKER_RECORD",
        (
            Field("broker_id", "int32"),
            Field("is_migrating_zk_broker", "boolean", since=2, default=False),
            Field("incarnation_id", "uuid"),
            Field("broker_epoch", "int64"),
            _END_POINTS,
            _FEATURES,
            Field("rack", "string", nullable=True),
            Field("fenced", "boolean", default=True),
            Field("in_controlled_shutdown", "boolean", since=1, default=False),
            Field("log_dirs", _UUIDS, since=3, tag=0, default=[]),
            Field("cordoned_log_dirs", _UUIDS, since=4, tag=1, nullable=True, default=None),
        ),
        last_version=4,
    ),
    1: Message("UNREGISTER_BROKER_RECORD", (Field("broker_id", "int32"), Field("broker_epoch", "int64"))),
    2: Message("TOPIC_RECORD", (Field("name", "string"), Field("topic_id", "uuid"))),
    3: Message(
        "PARTITION_RECORD",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("replicas", _INT32S),
            Field("isr", _INT32S),
            Field("removing_replicas", _INT32S),
            Field("adding_replicas", _INT32S),
            Field("leader", "int32"),
            Field("leader_recovery_state", "int8", tag=0, default=0),
            Field("leader_epoch", "int32"),
            Field("partition_epoch", "int32"),
            Field("directories", _UUIDS, since=1),
            Field("eligible_leader_replicas", _INT32S, since=2, tag=1, nullable=True, default=None),
            Field("last_known_elr", _INT32S, since=2, tag=2, nullable=True, default=None),
        ),
        last_version=2,
    ),
    4: Message(
        "CONFIG_RECORD",
        (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("name", "string"),
            Field("value", "string", nullable=True),
        ),
    ),
    5: Message(
        "PARTITION_CHANGE_RECORD",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("isr", _INT32S, tag=0, nullable=True, default=None),
            Field("leader", "int32", tag=1, default=-2),
            Field("replicas", _INT32S, tag=2, nullable=True, default=None),
            Field("removing_replicas", _INT32S, tag=3, nullable=True, default=None),
            Field("adding_replicas", _INT32S, tag=4, nullable=True, default=None),
            Field("leader_recovery_state", "int8", tag=5, default=-1),
            Field("directories", _UUIDS, since=1, tag=8, nullable=True, default=None),
            Field("eligible_leader_replicas", _INT32S, since=2, tag=6, nullable=True, default=None),
            Field("last_known_elr", _INT32S, since=2, tag=7, nullable=True, default=None),
        ),
        last_version=2,
    ),
    7: Message("FENCE_BROKER_RECORD", (Field("id", "int32"), Field("epoch", "int64"))),
    8: Message("UNFENCE_BROKER_RECORD", (Field("id", "int32"), Field("epoch", "int64"))),
    9: Message("REMOVE_TOPIC_RECORD", (Field("topic_id", "uuid"),)),
    10: Message(
        "DELEGATION_TOKEN_RECORD",
        (
            Field("owner", "string"),
            Field("requester", "string"),
            Field("renewers", ArrayOf("string")),
            Field("issue_timestamp", "int64"),
            Field("max_timestamp", "int64"),
            Field("expiration_timestamp", "int64"),
            Field("token_id", "string"),
        ),
    ),
    11: Message(
        "USER_SCRAM_CREDENTIAL_RECORD",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("salt", "bytes"),
            Field("stored_key", "bytes"),
            Field("server_key", "bytes"),
            Field("iterations", "int32"),
        ),
    ),
    12: Message("FEATURE_LEVEL_RECORD", (Field("name", "string"), Field("feature_level", "int16"))),
    14: Message(
        "CLIENT_QUOTA_RECORD",
        (
            Field(
                "entity",
                ArrayOf(Struct((Field("entity_type", "string"), Field("entity_name", "string", nullable=True)))),
            ),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "boolean"),
        ),
    ),
    15: Message(
        "PRODUCER_IDS_RECORD",
        (Field("broker_id", "int32"), Field("broker_epoch", "int64"), Field("next_producer_id", "int64")),
    ),
    17: Message(
        "BROKER_REGISTRATION_CHANGE_RECORD",
        (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("fenced", "int8", tag=0, default=0),
            Field("in_controlled_shutdown", "int8", since=1, tag=1, default=0),
            Field("log_dirs", _UUIDS, since=2, tag=2, default=[]),
            Field("cordoned_log_dirs", _UUIDS, since=3, tag=3, nullable=True, default=None),
        ),
        last_version=3,
    ),
    18: Message(
        "ACCESS_CONTROL_ENTRY_RECORD",
        (
            Field("id", "uuid"),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
    ),
    19: Message("REMOVE_ACCESS_CONTROL_ENTRY_RECORD", (Field("id", "uuid"),)),
    20: Message("NO_OP_RECORD", ()),
    21: Message("ZK_MIGRATION_STATE_RECORD", (Field("zk_migration_state", "int8"),)),
    22: Message("REMOVE_USER_SCRAM_CREDENTIAL_RECORD", (Field("name", "string"), Field("mechanism", "int8"))),
    23: Message("BEGIN_TRANSACTION_RECORD", (Field("name", "string", tag=0, nullable=True, default=None),)),
    24: Message("END_TRANSACTION_RECORD", ()),
    25: Message("ABORT_TRANSACTION_RECORD", (Field("reason", "string", tag=0, nullable=True, default=None),)),
    26: Message("REMOVE_DELEGATION_TOKEN_RECORD", (Field("token_id", "string"),)),
    27: Message(
        "REGISTER_CONTROLLER_RECORD",
        (
            Field("controller_id", "int32"),
            Field("incarnation_id", "uuid"),
            Field("zk_migration_ready", "boolean"),
            _END_POINTS,
            _FEATURES,
        ),
    ),
    28: Message("CLEAR_ELR_RECORD", (Field("topic_name", "string"),)),
}
