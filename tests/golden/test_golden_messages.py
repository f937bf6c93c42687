"""The records of Kafka's own topics: all types as Kafka's classes encode them, and those that a real broker wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import CorruptRecord
from duralog.format import batches
from duralog.format.internal.coordinator_records import decode_coordinator_record, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.internal_topics import COORDINATOR_TOPICS, describe_record, json_friendly
from duralog.format.internal.message_schema import decode_message, encode_message
from duralog.format.internal.metadata_records import METADATA_TYPES, decode_metadata_record, encode_metadata_record
from duralog.format.internal.share_records import SHARE_GROUP_STATE_TYPES
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parent / "message_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
COORDINATOR_TYPES = (
    *CONSUMER_OFFSETS_TYPES.values(),
    *SHARE_GROUP_STATE_TYPES.values(),
    *TRANSACTION_STATE_TYPES.values(),
)
MESSAGES = {
    message.name: message
    for message in (
        *(part for record_type in COORDINATOR_TYPES for part in (record_type.key, record_type.value)),
        *METADATA_TYPES.values(),
    )
}


def each_vector():
    return pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['message']}-v{v['version']}")


def test_there_are_vectors_for_all_messages_and_versions():
    assert {(vector["message"], vector["version"]) for vector in VECTORS} == {
        (name, version) for name, message in MESSAGES.items() for version in range(message.last_version + 1)
    }


@each_vector()
def test_a_message_is_decoded_and_encoded_as_kafka_does(vector):
    message, encoded = MESSAGES[vector["message"]], bytes.fromhex(vector["encoded"])
    decoded = decode_message(message, vector["version"], encoded)
    assert json_friendly(decoded) == vector["fields"]
    assert encode_message(message, vector["version"], decoded) == encoded


@each_vector()
def test_a_message_that_is_cut_anywhere_is_refused(vector):
    message, encoded = MESSAGES[vector["message"]], bytes.fromhex(vector["encoded"])
    for end in range(0, len(encoded), 1 + len(encoded) // 200):
        with pytest.raises(CorruptRecord) as caught:
            decode_message(message, vector["version"], encoded[:end])
        assert caught.value.position is not None
        assert 0 <= caught.value.position <= end


def records_of(golden, folder):
    """The data records of a partition's log."""
    for path in sorted((golden / "store" / folder).glob("*.log")):
        data = path.read_bytes()
        for batch in batches.scan(data):
            if not batch.is_control:
                yield from batches.decode_records(data, batch)


def described(topic: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    said = describe_record(topic, key, value)
    assert said is not None
    return said


@pytest.mark.parametrize(
    ("folder", "count"),
    [("__consumer_offsets-0", 17), ("__transaction_state-0", 121), ("__transaction_state-1", 121)],
)
def test_coordinator_records_are_encoded_to_the_same_bytes(golden, folder, count):
    types = COORDINATOR_TOPICS[folder[:-2]]
    records = list(records_of(golden, folder))
    assert len(records) == count
    for record in records:
        decoded = decode_coordinator_record(types, record.key, record.value)
        assert decoded.type_name is not None
        assert not isinstance(decoded.value, bytes)
        assert encode_coordinator_record(types, decoded) == (record.key, record.value)


def test_committed_offsets(golden):
    committed = {}
    for record in records_of(golden, "__consumer_offsets-0"):
        said = described("__consumer_offsets", record.key, record.value)
        if said["type"] == "OffsetCommit":
            assert said["version"] == 4
            committed[tuple(said["key"].values())] = said["value"]
    assert {key: value["offset"] for key, value in committed.items()} == {
        ("readers", "plain", 0): 3000,
        ("readers", "txn", 0): 0,
    }
    assert committed["readers", "plain", 0] == {
        "offset": 3000,
        "leader_epoch": 0,
        "metadata": "",
        "commit_timestamp": 1794726080739,
        "topic_id": "kbHEQbtORkGagHr8-qLv1w",
    }


def test_a_group_and_its_members(golden):
    record = list(records_of(golden, "__consumer_offsets-0"))[1]
    said = described("__consumer_offsets", record.key, record.value)
    member_id = "consumer-readers-1-215cb33a-e99e-410e-bfa2-6a7076296bfa"
    assert said == {
        "type": "GroupMetadata",
        "key": {"group": "readers"},
        "version": 3,
        "value": {
            "protocol_type": "consumer",
            "generation": 1,
            "protocol": "range",
            "leader": member_id,
            "current_state_timestamp": 1794726080547,
            "members": [
                {
                    "member_id": member_id,
                    "group_instance_id": None,
                    "client_id": "consumer-readers-1",
                    "client_host": "/127.0.0.1",
                    "rebalance_timeout": 300000,
                    "session_timeout": 45000,
                    "subscription": {
                        "version": 3,
                        "topics": ["plain", "txn"],
                        "user_data": None,
                        "owned_partitions": [],
                        "generation_id": -1,
                        "rack_id": None,
                    },
                    "assignment": {
                        "version": 3,
                        "assigned_partitions": [
                            {"topic": "plain", "partitions": [0]},
                            {"topic": "txn", "partitions": [0]},
                        ],
                        "user_data": None,
                    },
                }
            ],
        },
    }


@pytest.mark.parametrize(("partition", "transactional_id", "producer_id"), [(0, "t2", 4), (1, "t1", 3)])
def test_the_states_of_a_transactional_producer(golden, partition, transactional_id, producer_id):
    said = [
        described("__transaction_state", record.key, record.value)
        for record in records_of(golden, f"__transaction_state-{partition}")
    ]
    assert {entry["key"]["transactional_id"] for entry in said} == {transactional_id}
    assert {entry["value"]["producer_id"] for entry in said} == {producer_id}
    states = [entry["value"]["transaction_status_name"] for entry in said]
    assert states[0] == "EMPTY"
    # Forty transactions, each of them begun, prepared and completed.
    for begun, prepared, completed in zip(states[1::3], states[2::3], states[3::3], strict=True):
        assert begun == "ONGOING"
        assert (prepared, completed) in {
            ("PREPARE_COMMIT", "COMPLETE_COMMIT"),
            ("PREPARE_ABORT", "COMPLETE_ABORT"),
        }
    assert said[1]["value"]["transaction_partitions"] == [{"topic": "txn", "partition_ids": [0]}]
    assert said[-1]["value"]["producer_epoch"] == 40


def test_metadata_records_are_encoded_to_the_same_bytes(golden):
    records = list(records_of(golden, "__cluster_metadata-0"))
    assert len(records) == 102
    for record in records:
        decoded = decode_metadata_record(record.value)
        assert decoded.type_name is not None
        assert record.key is None
        assert encode_metadata_record(decoded) == record.value


def test_topics_and_configs_of_the_cluster(golden):
    topics, configs = {}, {}
    for record in records_of(golden, "__cluster_metadata-0"):
        said = described("__cluster_metadata", record.key, record.value)
        value = said["value"]
        if said["type"] == "TOPIC_RECORD":
            topics[value["name"]] = value["topic_id"]
        elif said["type"] == "CONFIG_RECORD":
            configs[value["resource_name"], value["name"]] = value["value"]
    assert topics["plain"] == "kbHEQbtORkGagHr8-qLv1w"
    for name, topic_id in topics.items():
        text = (golden / "store" / f"{name}-0" / "partition.metadata").read_text(encoding="ascii")
        assert text.endswith(f"topic_id: {topic_id}")
    assert configs["txn", "index.interval.bytes"] == "1024"
    assert configs["appendtime", "message.timestamp.type"] == "LogAppendTime"
    assert configs["__consumer_offsets", "cleanup.policy"] == "compact"


def test_a_metadata_snapshot_is_a_log_too(golden):
    data = (golden / "store/bootstrap.checkpoint").read_bytes()
    said = [
        described("__cluster_metadata", record.key, record.value)["value"]
        for batch in batches.scan(data)
        if not batch.is_control
        for record in batches.decode_records(data, batch)
    ]
    assert said[0] == {"name": "metadata.version", "feature_level": 30}
    assert len(said) == 6
