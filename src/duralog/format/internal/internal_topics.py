"""The records of Kafka's own topics as plain data, for people and for JSON.

The typed decoders and encoders are in `coordinator_records` (with the tables of `group_records`, `share_records`
and `transaction_records`) and in `metadata_records`. `describe_record` is for showing records: it takes a
record of any internal topic and gives a dict of names, numbers, text, lists and dicts; bytes become base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from duralog.errors import CorruptRecord
from duralog.format.internal.coordinator_records import CoordinatorRecord, RecordType, decode_coordinator_record
from duralog.format.internal.embedded_protocol import ASSIGNMENT, SUBSCRIPTION
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.message_schema import Message, decode_message
from duralog.format.internal.metadata_records import decode_metadata_record
from duralog.format.internal.share_records import SHARE_GROUP_STATE_TYPES
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES, TransactionStatus
from duralog.format.varint import Bytes

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, CLUSTER_METADATA))

COORDINATOR_TOPICS: dict[str, Mapping[int, RecordType]] = {
    CONSUMER_OFFSETS: CONSUMER_OFFSETS_TYPES,
    TRANSACTION_STATE: TRANSACTION_STATE_TYPES,
    SHARE_GROUP_STATE: SHARE_GROUP_STATE_TYPES,
}

PLACED_BY_COUNT = "which of them keeps a group or a transactional id follows from their number"
"""Why the topics of coordinators keep theirs: what is there already would not be found."""


def describe_record(topic: str, key: Bytes | None, value: Bytes | None) -> dict[str, Any] | None:
    """What the record says; None for a topic that is not one of Kafka's own. Raises CorruptRecord for damage.

    The dict has `type` (a name, or the number of an unknown type), `version` and `value` (None for a tombstone), and
    for all topics but the metadata log also `key`.
    """
    if topic == CLUSTER_METADATA:
        record = decode_metadata_record(value)
        return {
            "type": record.type_name or record.type_id,
            "version": record.version,
            "value": json_friendly(record.fields),
        }
    types = COORDINATOR_TOPICS.get(topic)
    if types is None:
        return None
    return _describe_coordinator_record(decode_coordinator_record(types, key, value))


def json_friendly(value: Any) -> Any:
    """The same data with bytes as base64, and the numbers of unknown tags as text."""
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(name): json_friendly(item) for name, item in value.items()}
    if isinstance(value, list):
        return [json_friendly(item) for item in value]
    return value


def _describe_coordinator_record(record: CoordinatorRecord) -> dict[str, Any]:
    value = record.value
    if isinstance(value, Mapping):
        if record.type_name == "GroupMetadata" and value["protocol_type"] == "consumer":
            value = {**value, "members": [_describe_member(member) for member in value["members"]]}
        elif record.type_name == "TransactionLog":
            value = {**value, "transaction_status_name": _status_name(value["transaction_status"])}
    return {
        "type": record.type_name or record.type_id,
        "key": json_friendly(record.key),
        "version": record.version,
        "value": json_friendly(value),
    }


def _describe_member(member: Mapping[str, Any]) -> dict[str, Any]:
    """A consumer's own bytes, decoded where they are what Kafka's consumers send."""
    return {
        **member,
        "subscription": _decode_versioned(SUBSCRIPTION, member["subscription"]),
        "assignment": _decode_versioned(ASSIGNMENT, member["assignment"]),
    }


def _decode_versioned(message: Message, data: bytes) -> dict[str, Any] | bytes:
    version = int.from_bytes(data[:2], signed=True)
    if len(data) < 2 or not 0 <= version <= message.last_version:
        return data
    try:
        return {"version": version, **decode_message(message, version, data, 2)}
    except CorruptRecord:
        return data


def _status_name(status: int) -> str | None:
    return TransactionStatus(status).name if status in set(TransactionStatus) else None
