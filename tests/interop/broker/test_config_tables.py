"""The config tables against Kafka's own: names, types, defaults, synonyms, and its verdict on many values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS, BrokerConfig, ConfigDef, TopicConfig
from duralog.config.kafka_only_configs import KAFKA_NAMES
from duralog.errors import InvalidConfig
from oracle.kafka_process import KafkaProcess

pytestmark = pytest.mark.interop

TABLES = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS}
DURALOGS_OWN = "internal.segment.bytes"
"""As a broker config; as a topic config, Kafka has it, and also takes numbers that make no sense."""

OF_THE_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")
OF_LISTENERS = ("ssl.keystore.type", "ssl.truststore.type", "ssl.enabled.protocols", "sasl.enabled.mechanisms")
OF_THE_AUDIT_LOG = ("duralog.audit.log.file", "duralog.audit.log.max.bytes", "duralog.audit.log.max.files")

NUMBERS = [
    *(-131073, -131072, -3, -2, -1, 0, 1, 2, 3, 4, 5, 9, 10, 17, 18, 22, 23, 1023, 1024, 4999, 5000, 15000, 15001),
    *(44999, 45000, 60000, 60001, 2**15 - 1, 2**15, 2**20 - 1, 2**20, 2**20 + 1, 2**21),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1),
]
TEXTS = [
    *("", " ", "x", "true", "FALSE", " True ", "yes", " 7 ", "+7", "- 1", "1_000", "0x10", "1e3", "0.5", "1.0", "1.5"),
    *("0.5f", ".5", "5.", "1e400", "-0.0", "*", "0:1", "0:1,1:2", "a:b", "delete", "compact", "delete, compact"),
    *("delete,delete", "delete,", ",", "Delete", "gzip", "snappy", "zstd", "lz4", "uncompressed", "producer", "none"),
    *("CreateTime", "LogAppendTime", "createtime"),
]
VALUES = [*map(str, NUMBERS), *TEXTS]

NOT_COMPARED = {
    "cordoned.log.dirs": "Kafka wants them among the log.dirs",
    "node.id": "Kafka wants it among the voters",
    "listeners": "Kafka parses addresses",
    "advertised.listeners": "Kafka parses addresses",
    "listener.security.protocol.map": "Kafka compares it with the listeners",
    "controller.listener.names": "Kafka compares it with the listeners",
    "connections.max.idle.ms": "Kafka compares it with a config that duralog does not have",
    "group.consumer.assignors": "Kafka loads classes",
    "connection.failed.authentication.delay.ms": "Kafka compares it with connections.max.idle.ms",
    "sasl.server.callback.handler.class": "Kafka loads the class",
    **dict.fromkeys(OF_LISTENERS, "Kafka reads it when a listener uses it, duralog at once"),
    DURALOGS_OWN: "see there",
    "authorizer.class.name": "Kafka loads the class",
    **dict.fromkeys(OF_THE_AUTHORIZER, "Kafka's authorizer reads them itself"),
    **dict.fromkeys(OF_THE_AUDIT_LOG, "Kafka has no audit log"),
}

TOO_SMALL_FOR_A_REQUEST = ("1", "2", "3", "4", "5", "9", "10", "17", "18", "22", "23", " 7 ", "+7")
STRICTER = {
    "broker": [
        # Java takes a number beyond all doubles for an infinite one.
        ("log.cleaner.io.buffer.load.factor", "1e400"),
        ("log.cleaner.io.max.bytes.per.second", "1e400"),
        # These leave no way into the broker.
        *(("socket.request.max.bytes", value) for value in TOO_SMALL_FOR_A_REQUEST),
        ("max.connections", "0"),
    ],
    # Kafka does not look at an empty element here, as it does in other lists.
    "topic": [
        ("follower.replication.throttled.replicas", ","),
        ("leader.replication.throttled.replicas", ","),
    ],
}
"""What duralog refuses and Kafka does not."""


@pytest.fixture(scope="module")
def declared(kafka: KafkaProcess) -> dict[str, Any]:
    return kafka.ask(command="configs")


def test_every_name_of_kafka_is_known(declared: dict[str, Any]) -> None:
    not_kafkas = {DURALOGS_OWN, *OF_THE_AUTHORIZER, *OF_THE_AUDIT_LOG}
    assert declared["broker"].keys() | not_kafkas == BROKER_CONFIGS.keys() | KAFKA_NAMES
    assert declared["topic"].keys() == TOPIC_CONFIGS.keys()


@pytest.mark.parametrize("scope", TABLES)
def test_types_and_defaults(declared: dict[str, Any], scope: str) -> None:
    def told(definition: ConfigDef) -> dict[str, str | None]:
        default = None if definition.default is None else definition.text(definition.default)
        return {"type": definition.kind.name.upper(), "default": default}

    ours = {name: told(definition) for name, definition in TABLES[scope].items() if name in declared[scope]}
    assert ours == {name: declared[scope][name] for name in ours}


def test_synonyms(declared: dict[str, Any]) -> None:
    ours = {name: [synonym.name for synonym in each.synonyms] for name, each in TOPIC_CONFIGS.items() if each.synonyms}
    assert ours.pop(DURALOGS_OWN) == [DURALOGS_OWN]
    assert ours == declared["synonyms"]


def judged(kafka: KafkaProcess, scope: str, cases: list[dict[str, str]]) -> list[dict[str, Any]]:
    verdicts: list[dict[str, Any]] = kafka.ask(
        command="judge", cases=[{"scope": scope, "values": values} for values in cases]
    )["verdicts"]
    assert len(verdicts) == len(cases)
    return verdicts


def accepts(scope: str, values: Mapping[str, str]) -> bool:
    try:
        if scope == "topic":
            TopicConfig().with_overrides(values)
        else:
            BrokerConfig.of(values)
    except InvalidConfig:
        return False
    return True


@pytest.mark.parametrize("scope", TABLES)
def test_the_same_values_are_accepted(kafka: KafkaProcess, scope: str) -> None:
    cases = [{name: value} for name in TABLES[scope] if name not in NOT_COMPARED for value in VALUES]
    wrong = [
        (values, verdict.get("complaint", "accepted by Kafka"))
        for values, verdict in zip(cases, judged(kafka, scope, cases), strict=True)
        if accepts(scope, values) != ("complaint" not in verdict)
    ]
    assert wrong == [({name: value}, "accepted by Kafka") for name, value in STRICTER[scope]]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"log.retention.hours": "2"},
        {"log.retention.hours": "2", "log.retention.minutes": "3"},
        {"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"},
        {"log.retention.minutes": "-7"},
        {"log.roll.hours": "3", "log.roll.jitter.hours": "1"},
        {"log.roll.hours": "3", "log.roll.ms": "5", "log.roll.jitter.hours": "1", "log.roll.jitter.ms": "0"},
        {"log.flush.scheduler.interval.ms": "9"},
        {"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"},
        {"log.cleanup.policy": "compact,delete", "compression.type": "zstd", "compression.zstd.level": "7"},
        {"log.cleaner.min.cleanable.ratio": "0.25", "log.preallocate": "TRUE", "message.max.bytes": " 77 "},
    ],
    ids=str,
)
def test_a_broker_gives_topics_the_same_configs(kafka: KafkaProcess, given: dict[str, str]) -> None:
    (verdict,) = judged(kafka, "broker", [given])
    config = BrokerConfig.of(given).topic_defaults()
    assert {name: config.text(name) or None for name in TOPIC_CONFIGS} == {
        name: text or None for name, text in verdict["topic_configs"].items()
    }


@pytest.mark.parametrize(
    ("scope", "given"),
    [
        ("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}),
        ("topic", {"no.such.config": "1"}),
        ("topic", {"log.segment.bytes": "1048576"}),
        ("broker", {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097153"}),
        ("broker", {"group.consumer.heartbeat.interval.ms": "20000"}),
    ],
)
def test_both_refuse(kafka: KafkaProcess, scope: str, given: dict[str, str]) -> None:
    (verdict,) = judged(kafka, scope, [given])
    assert "complaint" in verdict
    assert not accepts(scope, given)


@pytest.mark.parametrize(
    ("scope", "given"),
    [
        ("topic", {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}),
        ("broker", {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"}),
        (
            "broker",
            {"group.consumer.heartbeat.interval.ms": "20000", "group.consumer.max.heartbeat.interval.ms": "20000"},
        ),
    ],
)
def test_both_accept(kafka: KafkaProcess, scope: str, given: dict[str, str]) -> None:
    (verdict,) = judged(kafka, scope, [given])
    assert "complaint" not in verdict
    assert accepts(scope, given)
