"""Kafka, started on a directory that duralog made, serves every topic with its configs, and duralog continues after
it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import duralog
from duralog import Record
from oracle.dump_check import dump_complaints
from oracle.kafka_process import Json, KafkaProcess
from oracle.kafka_server import KafkaServer
from oracle.partition_view import PartitionView, seen_by_duralog, seen_by_kafka

pytestmark = pytest.mark.interop

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000

TOPICS: dict[str, dict[str, str]] = {
    # Nothing is old enough to be compacted while Kafka runs.
    "compacted": {"cleanup.policy": "compact", "min.compaction.lag.ms": str(DAY_MS), "segment.bytes": "1048576"},
    "retained": {"retention.ms": str(DAY_MS), "segment.bytes": "1048576", "file.delete.delay.ms": "0"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recompressed": {"compression.type": "zstd", "compression.zstd.level": "7"},
    "trimmed": {"retention.bytes": "1000000000"},
    "limited": {"max.message.bytes": "5000", "message.timestamp.before.max.ms": str(DAY_MS)},
    "wide": {},
}
PARTITIONS = {name: 3 if name == "wide" else 1 for name in TOPICS}
LOGS = [(name, number) for name, count in PARTITIONS.items() for number in range(count)]


def records(first: int, count: int, *, age_ms: int = 60_000, size: int = 10) -> list[Record]:
    return [
        Record(key=b"key-%d" % (number % 50), value=b"%07d" % number * size, timestamp_ms=NOW_MS - age_ms + number)
        for number in range(first, first + count)
    ]


def one(value: bytes, **fields: object) -> Json:
    return {"key": b"key".hex(), "value": value.hex(), **fields}


@dataclass
class Served:
    directory: Path
    topics_made: Json = field(default_factory=dict)
    made: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    dump: list[str] = field(default_factory=list)
    topics: Json = field(default_factory=dict)
    served: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    refusals: dict[str, int | str] = field(default_factory=dict)
    left: dict[tuple[str, int], PartitionView] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    found: dict[tuple[str, int], PartitionView] = field(default_factory=dict)


def make(store: duralog.Store, served: Served) -> None:
    for name, configs in TOPICS.items():
        topic_id = store.create_topic(name, PARTITIONS[name], configs)
        served.topics_made[name] = {"id": topic_id, "partitions": PARTITIONS[name], "configs": configs}
    store.create_topic("gone", 2)
    store.partition("gone", 1).append(records(0, 10))
    store.delete_topic("gone")

    for first in range(0, 200, 4):
        store.partition("compacted", 0).append(records(first, 4, size=2000))
    for first in range(0, 200, 4):
        age_ms = 60_000 if first >= 100 else 3 * DAY_MS
        store.partition("retained", 0).append(records(first, 4, size=2000, age_ms=age_ms))
    assert store.apply_retention().removals
    for name in ("stamped", "recompressed", "trimmed", "limited"):
        store.partition(name, 0).append(records(0, 40), codec="lz4")
    store.partition("trimmed", 0).delete_records(25)
    for number in range(3):
        store.partition("wide", number).append(records(1000 * number, 10 * number))
    served.made = views_of_duralog(store)


def serve(server: KafkaServer, served: Served) -> None:
    served.topics = server.topics()
    served.served = {(name, number): seen_by_kafka(server, name, number) for name, number in LOGS}
    old = NOW_MS - 2 * DAY_MS
    served.refusals = {
        "a null key in a compacted topic": server.produce("compacted", 0, [{"key": None, "value": "00"}])[0],
        "a large record": server.produce("limited", 0, [one(b"x" * 6000)])[0],
        "an old record": server.produce("limited", 0, [one(b"x", timestamp=old)])[0],
    }
    for name, number in LOGS:
        server.produce(name, number, [one(b"Kafka's", timestamp=old if name == "stamped" else NOW_MS)])
    served.left = {(name, number): seen_by_kafka(server, name, number) for name, number in LOGS}
    served.errors = server.errors


def views_of_duralog(store: duralog.Store) -> dict[tuple[str, int], PartitionView]:
    return {(name, number): seen_by_duralog(store.partition(name, number)) for name, number in LOGS}


@pytest.fixture(scope="module")
def served(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Served:
    served = Served(tmp_path_factory.mktemp("served") / "store")
    with duralog.open(served.directory, {"log.segment.delete.delay.ms": 0}) as store:
        make(store, served)
    served.dump = dump_complaints(kafka, served.directory)
    with KafkaServer(kafka, served.directory) as server:
        serve(server, served)
    with duralog.open(served.directory) as store:
        served.found = views_of_duralog(store)
    return served


def test_topics_with_their_ids_partitions_and_configs(served: Served) -> None:
    assert served.topics == served.topics_made


@pytest.mark.parametrize(("topic", "partition"), LOGS)
def test_every_answer_is_duralogs(served: Served, topic: str, partition: int) -> None:
    assert served.served[topic, partition] == served.made[topic, partition]


@pytest.mark.parametrize(("topic", "partition"), LOGS)
def test_duralog_continues_from_there(served: Served, topic: str, partition: int) -> None:
    view = served.found[topic, partition]
    assert view == served.left[topic, partition]
    assert view.values[-1] == b"Kafka's".hex()
    assert view.end_offset == served.made[topic, partition].end_offset + 1


def test_what_was_written_is_all_there(served: Served) -> None:
    """Guards the tests above, which empty logs would pass."""
    counts = {log: len(view.records) for log, view in served.served.items()}
    assert 100 <= counts.pop(("retained", 0)) < 200
    assert counts == {
        ("compacted", 0): 200,
        ("stamped", 0): 40,
        ("recompressed", 0): 40,
        ("trimmed", 0): 15,
        ("limited", 0): 40,
        ("wide", 0): 0,
        ("wide", 1): 10,
        ("wide", 2): 20,
    }
    assert served.served["trimmed", 0].start_offset == 25
    assert served.served["retained", 0].start_offset > 0


def test_configs_are_in_force(served: Served) -> None:
    refusals = {case: str(answer).partition(":")[0].rpartition(".")[2] for case, answer in served.refusals.items()}
    assert refusals == {
        "a null key in a compacted topic": "InvalidRecordException",
        "a large record": "RecordTooLargeException",
        "an old record": "InvalidTimestampException",
    }
    stamped = served.left["stamped", 0].records
    assert {record["timestamp_type"] for record in stamped} == {"LogAppendTime"}
    assert min(record["timestamp"] for record in stamped) >= NOW_MS


def test_kafka_had_nothing_to_complain_of(served: Served) -> None:
    assert served.dump == []
    assert [line for line in served.errors if "Error processing append operation" not in line] == []
    assert len(list((served.directory / "compacted-0").glob("*.log"))) > 2
