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
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49


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
        set_quotas(client, {"user": "ada", "client-id": None}, producer_byte_rate=1024.0, request_percentage=12.5)
        set_quotas(client, {"ip": "192.0.2.1"}, connection_creation_rate=7.0)
        quotas = quotas_of(client)
        assert len(quotas) == 2
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
        assert quotas_of(client) == quotas
        set_quotas(client, {"user": "ada", "client-id": None}, producer_byte_rate=None, consumer_byte_rate=99.0)
        set_quotas(client, {"ip": "192.0.2.1"}, connection_creation_rate=None)
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
        values = {"request_percentage": 12.5, "consumer_byte_rate": 99.0}
        assert quotas_of(client) == {frozenset({("user", "ada"), ("client-id", None)}): values}
        client.close()


def set_quotas(client: RawClient, entity: dict[str, str | None], **values: float | None) -> None:
    operations = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    fields = {"entries": [{"entity": named, "ops": operations}], "validate_only": False}
    (entry,) = client.ask(ALTER_CLIENT_QUOTAS, 1, fields).entries
    assert entry.error_code == 0, entry.error_message


def quotas_of(client: RawClient) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    entries = client.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}).entries
    return {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in entries
    }


def test_the_configs_that_only_kafka_uses_are_as_kafka_has_them(kafka: KafkaProcess) -> None:
    declared: dict[str, Any] = kafka.ask(command="configs")["broker"]
    ours = {
        name: {"type": config.kind.upper(), "default": config.default} for name, config in KAFKA_ONLY_CONFIGS.items()
    }
    assert ours == {name: declared[name] for name in ours}
