from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.internal.coordinator_records import (
    CoordinatorRecord,
    decode_coordinator_record,
    encode_coordinator_record,
)
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.internal_topics import describe_record, json_friendly
from duralog.format.internal.metadata_records import MetadataRecord, decode_metadata_record, encode_metadata_record
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES

COMMIT_KEY = bytes.fromhex("0001 0001 67 0001 74 00000002")
COMMIT_VALUE = bytes.fromhex("0003 0000000000000005 ffffffff 0000 0000000000000064")
COMMIT = CoordinatorRecord(
    type_id=1,
    type_name="OffsetCommit",
    key={"group": "g", "topic": "t", "partition": 2},
    version=3,
    value={"offset": 5, "leader_epoch": -1, "metadata": "", "commit_timestamp": 100},
)


def test_a_committed_offset():
    assert decode_coordinator_record(CONSUMER_OFFSETS_TYPES, COMMIT_KEY, COMMIT_VALUE) == COMMIT
    assert encode_coordinator_record(CONSUMER_OFFSETS_TYPES, COMMIT) == (COMMIT_KEY, COMMIT_VALUE)
    assert described("__consumer_offsets", COMMIT_KEY, COMMIT_VALUE) == {
        "type": "OffsetCommit",
        "key": {"group": "g", "topic": "t", "partition": 2},
        "version": 3,
        "value": {"offset": 5, "leader_epoch": -1, "metadata": "", "commit_timestamp": 100},
    }


def described(topic: str, key: bytes | None, value: bytes | None) -> Any:
    return describe_record(topic, key, value)


def test_a_tombstone():
    record = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, COMMIT_KEY, None)
    assert (record.version, record.value) == (None, None)
    assert encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) == (COMMIT_KEY, None)
    assert described("__consumer_offsets", COMMIT_KEY, None)["value"] is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0009 aabb", "0000 cc"),
        ("7fff", "0001"),
        ("ffff aa", None),
        ("0001 0001 67 0001 74 00000002", "0005 aabb"),
        ("0001 0001 67 0001 74 00000002", "ffff aabb"),
    ],
)
def test_unknown_types_and_versions_keep_their_bytes(key, value):
    key, value = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    record = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, key, value)
    assert isinstance(record.value, bytes | None)
    assert encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) == (key, value)
    json.dumps(described("__consumer_offsets", key, value))


def test_an_unknown_type_is_reported_by_its_number():
    assert described("__consumer_offsets", b"\x00\x63ab", b"\x00\x01cd") == {
        "type": 99,
        "key": "YWI=",
        "version": 1,
        "value": "Y2Q=",
    }


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (None, COMMIT_VALUE, Fault.FIELD_VALUE),
        (b"", COMMIT_VALUE, Fault.FIELD_LENGTH),
        (b"\0", COMMIT_VALUE, Fault.FIELD_LENGTH),
        (COMMIT_KEY, b"\0", Fault.FIELD_LENGTH),
        (COMMIT_KEY[:-1], COMMIT_VALUE, Fault.FIELD_LENGTH),
    ],
)
def test_damaged_coordinator_records_are_refused(key, value, fault):
    with pytest.raises(CorruptRecord) as caught:
        described("__consumer_offsets", key, value)
    assert caught.value.fault is fault


def test_bytes_after_the_fields_are_ignored_as_kafka_does():
    whole = described("__consumer_offsets", COMMIT_KEY, COMMIT_VALUE)
    assert described("__consumer_offsets", COMMIT_KEY + b"more", COMMIT_VALUE + b"\0") == whole


def test_an_unknown_type_may_have_a_value_without_a_version():
    record = decode_coordinator_record(CONSUMER_OFFSETS_TYPES, b"\0\x63", b"\1")
    assert (record.version, record.value, record.is_unknown) == (None, b"\1", True)


def test_an_error_names_the_message_it_was_found_in():
    with pytest.raises(CorruptRecord, match="position 8: OffsetCommitKey v0: the bytes end inside partition"):
        described("__consumer_offsets", COMMIT_KEY[:-1], COMMIT_VALUE)


@given(
    st.sampled_from(["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"]),
    st.integers(0, 24),
    st.integers(0, 4),
    st.binary(max_size=60),
    st.binary(max_size=120),
)
def test_random_records_are_described_or_refused(topic, type_id, version, key, value):
    """Types and versions that exist, with anything behind them."""
    if topic == "__cluster_metadata":
        value = bytes([1, type_id, version]) + value
    else:
        key, value = bytes([0, type_id]) + key, bytes([0, version]) + value
    with contextlib.suppress(CorruptRecord):
        json.dumps(describe_record(topic, key, value))


def test_fields_of_an_unknown_type_cannot_be_encoded():
    stranger = CoordinatorRecord(type_id=99, type_name=None, key={"a": 1}, version=0, value=b"")
    with pytest.raises(InvalidRecord, match="unknown type"):
        encode_coordinator_record(CONSUMER_OFFSETS_TYPES, stranger)
    with pytest.raises(InvalidRecord, match="needs a version"):
        encode_coordinator_record(
            CONSUMER_OFFSETS_TYPES,
            CoordinatorRecord(type_id=99, type_name=None, key=b"", version=None, value=b""),
        )
    with pytest.raises(InvalidRecord, match="unknown type"):
        encode_metadata_record(MetadataRecord(type_id=99, type_name=None, version=0, fields={}))


def group_of(*, protocol_type: str, subscription: bytes) -> tuple[bytes, bytes | None]:
    member = {
        "member_id": "m",
        "client_id": "c",
        "client_host": "h",
        "session_timeout": 1,
        "subscription": subscription,
        "assignment": b"",
    }
    return encode_coordinator_record(
        CONSUMER_OFFSETS_TYPES,
        CoordinatorRecord(
            type_id=2,
            type_name="GroupMetadata",
            key={"group": "g"},
            version=0,
            value={
                "protocol_type": protocol_type,
                "generation": 1,
                "protocol": None,
                "leader": None,
                "members": [member],
            },
        ),
    )


@pytest.mark.parametrize(
    ("protocol_type", "subscription", "expected"),
    [
        (
            "consumer",
            bytes.fromhex("0000 00000001 0001 74 ffffffff"),
            {"version": 0, "topics": ["t"], "user_data": None},
        ),
        ("consumer", b"", ""),
        ("consumer", b"\x00\x09abc", "AAlhYmM="),
        ("consumer", b"\x00\x00abc", "AABhYmM="),
        ("connect", bytes.fromhex("0000 00000000 ffffffff"), "AAAAAAAA/////w=="),
    ],
)
def test_the_subscription_of_a_consumer_is_decoded_where_it_can_be(protocol_type, subscription, expected):
    key, value = group_of(protocol_type=protocol_type, subscription=subscription)
    said = described("__consumer_offsets", key, value)
    assert said["value"]["members"][0]["subscription"] == expected
    assert said["value"]["members"][0]["assignment"] == ""


def test_a_transaction():
    record = CoordinatorRecord(
        type_id=0,
        type_name="TransactionLog",
        key={"transactional_id": "t"},
        version=0,
        value={
            "producer_id": 1,
            "producer_epoch": 2,
            "transaction_timeout_ms": 3,
            "transaction_status": 4,
            "transaction_partitions": None,
            "transaction_last_update_timestamp_ms": 5,
            "transaction_start_timestamp_ms": 6,
        },
    )
    key, value = encode_coordinator_record(TRANSACTION_STATE_TYPES, record)
    assert value is not None
    assert key.hex() == "0000000174"
    assert value.hex() == "0000000000000000000100020000000304ffffffff00000000000000050000000000000006"
    said = described("__transaction_state", key, value)
    assert said["value"]["transaction_status_name"] == "COMPLETE_COMMIT"
    unknown_status = value[:16] + b"\x63" + value[17:]
    assert described("__transaction_state", key, unknown_status)["value"]["transaction_status_name"] is None


TOPIC = bytes.fromhex("01 02 00 06 70 6c 61 69 6e") + bytes(range(16)) + b"\0"


def test_a_metadata_record():
    decoded = decode_metadata_record(TOPIC)
    assert decoded == MetadataRecord(
        type_id=2,
        type_name="TOPIC_RECORD",
        version=0,
        fields={"name": "plain", "topic_id": "AAECAwQFBgcICQoLDA0ODw"},
    )
    assert encode_metadata_record(decoded) == TOPIC
    assert described("__cluster_metadata", None, TOPIC) == {
        "type": "TOPIC_RECORD",
        "version": 0,
        "value": {"name": "plain", "topic_id": "AAECAwQFBgcICQoLDA0ODw"},
    }


@pytest.mark.parametrize("value", ["01 e707 05 aabb", "01 02 01 aabb"])
def test_unknown_metadata_types_and_versions_keep_their_bytes(value):
    value = bytes.fromhex(value)
    decoded = decode_metadata_record(value)
    assert decoded.fields == b"\xaa\xbb"
    assert encode_metadata_record(decoded) == value
    assert described("__cluster_metadata", None, value)["value"] == "qrs="


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, Fault.FIELD_VALUE),
        (b"", Fault.VARINT),
        (b"\x01\x02", Fault.VARINT),
        (b"\x02\x02\x00", Fault.FIELD_VALUE),
        (TOPIC[:-1], Fault.VARINT),
        (TOPIC + b"\0", Fault.TRAILING_BYTES),
    ],
)
def test_damaged_metadata_records_are_refused(value, fault):
    with pytest.raises(CorruptRecord) as caught:
        decode_metadata_record(value)
    assert caught.value.fault is fault


def test_other_topics_are_not_described():
    assert described("orders", b"k", b"v") is None


def test_what_json_cannot_hold_is_changed():
    assert json_friendly({"a": [b"\xff", {1: None}], "b": 1.5}) == {"a": ["/w==", {"1": None}], "b": 1.5}
