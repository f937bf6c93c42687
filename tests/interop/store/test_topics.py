"""Topics made, changed and deleted by the store, as Kafka sees them afterwards; and a directory that Kafka is using."""

from __future__ import annotations

from pathlib import Path

import pytest

import duralog
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer, format_directory

pytestmark = pytest.mark.interop


def test_kafka_serves_the_topics_as_the_store_left_them(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with duralog.open(directory) as store:
        store.create_topic("orders", 2, {"retention.ms": -1, "segment.bytes": 1 << 20})
        store.create_topic("altered", 1, {"cleanup.policy": "compact"})
        store.create_topic("deleted", 1)
        log = store.partition("orders", 1)
        log.append([duralog.Record(key=b"%d" % number, value=b"v" * 100) for number in range(1000)], codec="lz4")
        log.delete_records(500)
        store.alter_topic_config("altered", {"cleanup.policy": None, "max.message.bytes": 5000})
        store.add_partitions("altered", 3)
        store.delete_topic("deleted")
        ids = {name: store.topic_id(name) for name in store.topics()}
    with KafkaServer(kafka, directory) as server:
        assert server.topics() == {
            "orders": {
                "id": ids["orders"],
                "partitions": 2,
                "configs": {"retention.ms": "-1", "segment.bytes": "1048576"},
            },
            "altered": {"id": ids["altered"], "partitions": 3, "configs": {"max.message.bytes": "5000"}},
        }
        consumed = server.consume("orders", 1)
        assert (consumed["start"], consumed["end"], len(consumed["records"])) == (500, 1000, 500)
        server.create_topic("by-kafka", 1, {"segment.bytes": "1048576"})
        assert server.errors == []
    with duralog.open(directory) as store:
        assert store.topics() == ["altered", "by-kafka", "orders"]
        assert store.topic_overrides("by-kafka") == {"segment.bytes": "1048576"}
        store.delete_topic("by-kafka")
        store.create_topic("second", 1)
        store.partition("second", 0).append([duralog.Record(value=b"x")])
    with KafkaServer(kafka, directory) as server:
        assert sorted(server.topics()) == ["altered", "orders", "second"]
        assert server.consume("second", 0)["end"] == 1
        assert server.errors == []


def test_a_directory_that_kafka_is_using_can_be_read_and_not_written(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    format_directory(kafka, directory)
    with KafkaServer(kafka, directory) as server:
        server.create_topic("orders", 2, {"segment.bytes": "1048576"})
        server.produce("orders", 0, [{"key": "61", "value": "62" * 500}] * 100)
        with duralog.open(directory, read_only=True) as store:
            assert store.topics() == ["orders"]
            assert store.topic_overrides("orders") == {"segment.bytes": "1048576"}
            assert [record.key for record in store.partition("orders", 0).read(0)] == [b"a"] * 100
            assert store.partition("orders", 1).end_offset == 0
        with pytest.raises(duralog.StoreLocked):
            duralog.open(directory)
        server.produce("orders", 0, [{"key": "63", "value": "64"}])
        assert server.consume("orders", 0)["end"] == 101
        assert server.errors == []
        server.kill()
    with duralog.open(directory) as store:
        assert store.partition("orders", 0).end_offset == 101
        assert store.topic_overrides("orders") == {"segment.bytes": "1048576"}
