"""Control records: markers of transactions and the types of the metadata log, both ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.format import batches, control_records, record_batch
from duralog.format.control_records import (
    ControlRecord,
    ControlType,
    Endpoint,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVoter,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
)
from duralog.format.record import Record
from oracle.kafka_process import KafkaProcess
from oracle.truth import by_reference

pytestmark = pytest.mark.interop

Json = dict[str, Any]

DIRECTORY = "tS2KlFdqSoSxXzLU4aKZEQ"
OTHER_DIRECTORY = "Vd3Aba1QQE-vkBLfbQVpzA"

# What duralog calls it, Kafka's type, and its message as Kafka's JSON converters have it.
CONTROLS: dict[str, tuple[ControlRecord, str, Json]] = {
    "commit": (
        EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=2**31 - 1),
        "COMMIT",
        {"coordinatorEpoch": 2**31 - 1},
    ),
    "abort": (EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=0), "ABORT", {"coordinatorEpoch": 0}),
    "leader-change-v0": (
        LeaderChange(version=0, leader_id=7, voters=[Voter(voter_id=7), Voter(voter_id=8)], granting_voters=[]),
        "LEADER_CHANGE",
        {"version": 0, "leaderId": 7, "voters": [{"voterId": 7}, {"voterId": 8}], "grantingVoters": []},
    ),
    "leader-change-v1": (
        LeaderChange(
            version=1,
            leader_id=2**31 - 1,
            voters=[Voter(voter_id=1, directory_id=DIRECTORY)],
            granting_voters=[Voter(voter_id=2, directory_id=OTHER_DIRECTORY)],
        ),
        "LEADER_CHANGE",
        {
            "version": 1,
            "leaderId": 2**31 - 1,
            "voters": [{"voterId": 1, "voterDirectoryId": DIRECTORY}],
            "grantingVoters": [{"voterId": 2, "voterDirectoryId": OTHER_DIRECTORY}],
        },
    ),
    "snapshot-header": (
        SnapshotHeader(last_contained_log_timestamp_ms=1_700_000_000_000),
        "SNAPSHOT_HEADER",
        {"version": 0, "lastContainedLogTimestamp": 1_700_000_000_000},
    ),
    "snapshot-footer": (SnapshotFooter(), "SNAPSHOT_FOOTER", {"version": 0}),
    "kraft-version": (KRaftVersion(kraft_version=1), "KRAFT_VERSION", {"version": 0, "kRaftVersion": 1}),
    "kraft-voters": (
        KRaftVoters(
            voters=[
                KRaftVoter(
                    voter_id=3,
                    directory_id=DIRECTORY,
                    endpoints=[
                        Endpoint(name="CONTROLLER", host="host-ä", port=65535),
                        Endpoint(name="OTHER", host="127.0.0.1", port=1),
                    ],
                    min_supported_version=0,
                    max_supported_version=1,
                )
            ]
        ),
        "KRAFT_VOTERS",
        {
            "version": 0,
            "voters": [
                {
                    "voterId": 3,
                    "voterDirectoryId": DIRECTORY,
                    "endpoints": [
                        {"name": "CONTROLLER", "host": "host-ä", "port": 65535},
                        {"name": "OTHER", "host": "127.0.0.1", "port": 1},
                    ],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
    ),
}
MARKERS = ("commit", "abort")


def description(name: str) -> Json:
    """A control batch for Kafka to write, as a coordinator or a KRaft controller does."""
    _, kafka_type, message = CONTROLS[name]
    control = {"type": kafka_type, "timestamp": 5000, "message": message}
    if name in MARKERS:
        return {
            "magic": 2,
            "base_offset": 10,
            "producer_id": 7,
            "producer_epoch": 3,
            "transactional": True,
            "leader_epoch": 2,
            "control": control,
        }
    return {"magic": 2, "base_offset": 10, "leader_epoch": 2, "control": control}


@pytest.mark.parametrize("name", CONTROLS)
def test_reading(kafka: KafkaProcess, tmp_path: Path, read: Callable[[bytes], Json], name: str) -> None:
    path = tmp_path / "0.log"
    kafka.write(path, [description(name)])
    data = path.read_bytes()
    assert read(data) == kafka.read(path)
    (batch,) = batches.scan(data)
    assert batch.is_control
    assert batch.is_transactional == (name in MARKERS)
    (record,) = batches.decode_records(data, batch)
    assert control_records.decode(record.key, record.value) == _as_decoded(CONTROLS[name][0])


@pytest.mark.parametrize("name", CONTROLS)
def test_writing(kafka: KafkaProcess, tmp_path: Path, name: str) -> None:
    """The batch is Kafka's own, byte for byte, and Kafka decodes the record to the same message."""
    control, kafka_type, message = CONTROLS[name]
    key, value = control_records.encode(control)
    assert value is not None
    answer = kafka.control_record(key, value)
    assert answer["type"] == kafka_type
    if name not in MARKERS:
        assert answer["message"] == message

    producer: dict[str, Any] = {}
    if name in MARKERS:
        producer = {"producer_id": 7, "producer_epoch": 3, "is_transactional": True}
    data = record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=5000)], base_offset=10, leader_epoch=2, is_control=True, **producer
    )
    path = tmp_path / "0.log"
    kafka.write(path, [description(name)])
    assert data == path.read_bytes()
    assert by_reference(data) == kafka.read(path)


@pytest.mark.parametrize("name", MARKERS)
def test_the_dump_tool_names_the_marker(kafka: KafkaProcess, tmp_path: Path, name: str) -> None:
    control = CONTROLS[name][0]
    assert isinstance(control, EndTransactionMarker)
    key, value = control_records.encode(control)
    data = record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=1)],
        is_control=True,
        is_transactional=True,
        producer_id=1,
        producer_epoch=0,
    )
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(data)
    stdout, complaints = kafka.dump("--deep-iteration", "--files", str(log))
    assert complaints == ""
    assert f"endTxnMarker: {name.upper()} coordinatorEpoch: {control.coordinator_epoch}" in stdout


def _as_decoded(control: ControlRecord) -> ControlRecord:
    """The decoder gives tuples where the tests were written with lists."""
    key, value = control_records.encode(control)
    return control_records.decode(key, value)
