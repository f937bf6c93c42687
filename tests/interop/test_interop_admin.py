"""What clients set through the broker, Kafka finds when it is started on the directory, and the other way round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer
from tests.support.broker.admin_desk import (
    BROKER,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    alter,
    config_values,
    describe_configs,
    make,
    metadata,
)
from tests.support.broker.raw_client import RawClient

pytestmark = pytest.mark.interop

TIMEOUT = "consumer.session.timeout.ms"


def client_of(address: str) -> RawClient:
    host, port = address.split(":")
    return RawClient(host, int(port))


def test_configs_go_to_kafka_and_come_back(tmp_path: Path, kafka: KafkaProcess) -> None:
    with Broker(str(tmp_path)) as broker:
        broker.start()
        client = client_of(f"127.0.0.1:{broker.address.port}")
        topic_id = make(client, "t", 2, cleanup_policy="delete,compact")
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "86400000")) == (0, None)
        assert alter(client, BROKER, "", ("log.segment.bytes", SET, "2097152")) == (0, None)
        assert alter(client, BROKER, "1", ("message.max.bytes", SET, "5000")) == (0, None)
        assert alter(client, GROUP, "g", (TIMEOUT, SET, "50000")) == (0, None)
        told = {config.name: config for config in describe_configs(client, TOPIC, "t", synonyms=True).configs}
        client.close()
    with KafkaServer(kafka, tmp_path) as server:
        assert server.topics()["t"]["partitions"] == 2
        client = client_of(server.bootstrap)
        (topic,) = metadata(client, "t").topics
        assert topic.topic_id == topic_id
        kafkas = {config.name: config for config in describe_configs(client, TOPIC, "t", synonyms=True).configs}
        assert kafkas == told
        assert config_values(client, BROKER, "1", "message.max.bytes") == {"message.max.bytes": "5000"}
        assert config_values(client, GROUP, "g", TIMEOUT) == {TIMEOUT: "50000"}
        assert alter(client, BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
        assert alter(client, BROKER, "", ("message.max.bytes", SET, "6000")) == (0, None)
        assert alter(client, GROUP, "g", (TIMEOUT, SET, "55000")) == (0, None)
        client.close()
        server.stop()
        assert server.errors == []
    with Broker(str(tmp_path)) as broker:
        broker.start()
        client = client_of(f"127.0.0.1:{broker.address.port}")
        assert config_values(client, BROKER, "1", "message.max.bytes") == {"message.max.bytes": "6000"}
        assert config_values(client, TOPIC, "t", "max.message.bytes") == {"max.message.bytes": "6000"}
        assert config_values(client, GROUP, "g", TIMEOUT) == {TIMEOUT: "55000"}
        client.close()


def test_the_configs_that_only_kafka_uses_are_as_kafka_has_them(kafka: KafkaProcess) -> None:
    declared: dict[str, Any] = kafka.ask(command="configs")["broker"]
    ours = {
        name: {"type": config.kind.upper(), "default": config.default} for name, config in KAFKA_ONLY_CONFIGS.items()
    }
    assert ours == {name: declared[name] for name in ours}
