"""Which records of the coordinators' topics a coordinator can load: one rule for Produce, loading, verify and repair.

Kafka 4.3.1 stops at a record that it cannot decode, or whose state cannot be: it then serves no group of that partition
of `__consumer_offsets`, and no transactional id that follows in `__transaction_state`. It skips records of a type that
it does not know. A value in an unknown version stops the loader of groups, and is skipped by that of transactions.

Each record is checked by itself. Whether it fits the records before it is for the coordinator to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from duralog.errors import CorruptRecord
from duralog.format.internal.coordinator_records import CoordinatorRecord, decode_coordinator_record
from duralog.format.internal.internal_topics import COORDINATOR_TOPICS, TRANSACTION_STATE
from duralog.format.internal.transaction_records import AT_REST, NEVER_WRITTEN, TransactionStatus

_GROUP_METADATA: Final = "GroupMetadata"
_CONSUMER_GROUP_METADATA: Final = "ConsumerGroupMetadata"
_TRANSACTION: Final = "TransactionLog"
_LARGEST_EPOCH: Final = 2**30
"""A coordinator counts changes of a group and does not get this far. It could not count on for long."""
_LAST_CLIENT_VERSION: Final = 2
"""Of transactions, that Kafka 4.3.1 knows."""

_LONG_TEXT: Final = 0x80
"""In the first byte of a length of two bytes: it is negative. In a compact length of one byte: more bytes follow."""
_COMMIT_TYPE: Final = b"\x00\x01"
_COMMIT_VERSION: Final = b"\x00\x04"
_METADATA_AT: Final = 14
"""Of a commit's value: version, offset and leader epoch come before."""
_TIMESTAMP_BYTES: Final = 8
_NO_TAGS: Final = b"\x00"
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
_TOPIC_ID_BYTES: Final = 16


def decode_loadable(topic: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """The record, which may be one that the tables do not know (`is_unknown`).

    Raises CorruptRecord for a record that no coordinator can load. REQUIRES: the topic is one of `COORDINATOR_TOPICS`.
    """
    record = decode_coordinator_record(COORDINATOR_TOPICS[topic], key, value)
    if record.version is not None and record.version < 0 and record.type_name is not None:
        raise CorruptRecord("the version of the value is negative", expected="0 or more", found=record.version)
    if isinstance(record.value, Mapping):
        if record.type_name == _GROUP_METADATA:
            _check_group(record.value)
        elif record.type_name == _CONSUMER_GROUP_METADATA:
            _check_epoch("epoch", record.value)
        elif record.type_name == _TRANSACTION:
            _check_transaction(record.value)
    return record


def stops_kafka(topic: str, record: CoordinatorRecord) -> bool:
    """Whether Kafka 4.3.1 cannot load a partition with this record because its value is in an unknown version."""
    return record.is_unknown and record.type_name is not None and topic != TRANSACTION_STATE


def unknown_reason(record: CoordinatorRecord) -> str:
    """REQUIRES: `record.is_unknown`."""
    if record.type_name is None:
        return f"records of type {record.type_id} are not known"
    return f"{record.type_name} records of version {record.version} are not known"


def is_usual_commit(key: bytes, value: bytes | None) -> bool:
    """Whether the record is a committed offset, or its tombstone, as Kafka 4.3.1 writes it: then it can be loaded.

    Nearly all records of `__consumer_offsets` are. This takes a tenth of the time of `decode_loadable`.
    """
    size = len(key)
    if size < 10 or key[:2] != _COMMIT_TYPE or key[2] >= _LONG_TEXT:
        return False
    topic_at = 4 + (key[2] << 8 | key[3])
    if topic_at + 6 > size or key[topic_at] >= _LONG_TEXT:
        return False
    if topic_at + 6 + (key[topic_at] << 8 | key[topic_at + 1]) != size:
        return False
    if value is None:
        return True
    if len(value) <= _METADATA_AT or value[:2] != _COMMIT_VERSION or not 0 < value[_METADATA_AT] < _LONG_TEXT:
        return False
    tags = value[_METADATA_AT + value[_METADATA_AT] + _TIMESTAMP_BYTES :]
    return tags == _NO_TAGS or (len(tags) == len(_TOPIC_ID_TAG) + _TOPIC_ID_BYTES and tags.startswith(_TOPIC_ID_TAG))


def _check_epoch(name: str, value: Mapping[str, Any]) -> None:
    if value[name] > _LARGEST_EPOCH:
        raise CorruptRecord(
            f"the {name} of a group is too large", expected=f"up to {_LARGEST_EPOCH}", found=value[name]
        )


def _check_group(value: Mapping[str, Any]) -> None:
    _check_epoch("generation", value)
    members = value["members"]
    if members and value["protocol"] is None:
        raise CorruptRecord("a group has members and no protocol", expected="the name of a protocol", found="null")
    for name in ("member_id", "group_instance_id"):
        ids = [member[name] for member in members if member.get(name) is not None]
        if len(set(ids)) < len(ids):
            raise CorruptRecord(
                f"two members of a group have the same {name}", expected=f"{len(ids)} of them", found=len(set(ids))
            )


def _check_transaction(value: Mapping[str, Any]) -> None:
    status = value["transaction_status"]
    if status not in set(TransactionStatus) or status in NEVER_WRITTEN:
        expected = f"0 to {max(set(TransactionStatus) - NEVER_WRITTEN):d}"
        raise CorruptRecord("a transaction has an impossible status", expected=expected, found=status)
    if status != TransactionStatus.EMPTY and value["transaction_partitions"] is None:
        raise CorruptRecord("a transaction has no partitions", expected="a list of them", found="null")
    if value["producer_id"] < 0:
        raise CorruptRecord("a producer id is negative", expected="0 or more", found=value["producer_id"])
    least_epoch = -1 if status in AT_REST else 0
    if value["producer_epoch"] < least_epoch:
        raise CorruptRecord(
            "a producer epoch is negative", expected=f"{least_epoch} or more", found=value["producer_epoch"]
        )
    client_version = value.get("client_transaction_version", 0)
    if not 0 <= client_version <= _LAST_CLIENT_VERSION:
        raise CorruptRecord(
            "a transaction version does not exist", expected=f"0 to {_LAST_CLIENT_VERSION}", found=client_version
        )
