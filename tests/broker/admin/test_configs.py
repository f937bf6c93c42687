"""Configs of topics, brokers, loggers and groups: read and changed, as Kafka 4.3.1 answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from duralog.broker.broker import Broker
from duralog.broker.configs.dynamic import DYNAMIC_CONFIGS, LISTENERS_CONFIGS, ONE_BROKERS_CONFIGS
from duralog.broker.handlers.cluster import describe_configs as describe_configs_handler
from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS
from duralog.config.kafka_only_configs import KAFKA_NAMES, KAFKA_ONLY_CONFIGS
from duralog.storage.metadata.cluster_metadata import BROKER_RESOURCE
from tests.support.broker.admin_desk import (
    ALTER_CONFIGS,
    APPEND,
    BROKER,
    DELETE,
    DESCRIBE_CONFIGS,
    GROUP,
    INCREMENTAL_ALTER_CONFIGS,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    config_values,
    describe_configs,
    make,
)
from tests.support.broker.raw_client import RawClient

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an"
    " incompatible broker. See the broker logs for more details."
)


def told_of(result: Any, name: str) -> Any:
    (config,) = (config for config in result.configs if config.name == name)
    return config


def synonyms_of(config: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


class TestDescribeTopics:
    def test_all_configs(self, client: RawClient) -> None:
        make(client, "t", retention_ms="1000", cleanup_policy="delete,compact")
        result = describe_configs(client, TOPIC, "t", synonyms=True, doc=True)
        assert (result.error_code, result.error_message, result.resource_name) == (0, "", "t")
        assert {config.name for config in result.configs} == TOPIC_CONFIGS.keys() - {"internal.segment.bytes"}
        assert not any(config.read_only or config.is_sensitive for config in result.configs)
        assert all(config.documentation for config in result.configs)
        policy = told_of(result, "cleanup.policy")
        assert (policy.value, policy.config_source, policy.config_type) == ("delete,compact", 1, 7)
        assert synonyms_of(policy) == [("cleanup.policy", "delete,compact", 1), ("log.cleanup.policy", "delete", 5)]
        retention = told_of(result, "retention.ms")
        assert (retention.value, retention.config_source, retention.config_type) == ("1000", 1, 5)
        assert synonyms_of(retention) == [("retention.ms", "1000", 1)]
        assert synonyms_of(told_of(result, "min.insync.replicas")) == [
            ("min.insync.replicas", "1", 3),
            ("min.insync.replicas", "1", 5),
        ]
        segment = told_of(result, "segment.ms")
        assert (segment.value, segment.config_source, segment.synonyms) == ("604800000", 5, ())
        ratio = told_of(result, "min.cleanable.dirty.ratio")
        assert (ratio.value, ratio.config_type) == ("0.5", 6)

    def test_only_what_is_asked_for(self, client: RawClient) -> None:
        make(client, "t")
        result = describe_configs(client, TOPIC, "t", ["retention.ms", "nope", "preallocate"])
        assert {config.name for config in result.configs} == {"retention.ms", "preallocate"}
        assert all(config.synonyms == () and config.documentation is None for config in result.configs)
        assert len(describe_configs(client, TOPIC, "t", []).configs) == 33

    @pytest.mark.parametrize("version", range(1, 5))
    def test_every_version(self, client: RawClient, version: int) -> None:
        make(client, "t", retention_ms="7")
        resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ["retention.ms"]}
        answer = client.ask(DESCRIBE_CONFIGS, version, {"resources": [resource], "include_synonyms": True})
        (config,) = answer.results[0].configs
        assert (config.name, config.value, config.config_source) == ("retention.ms", "7", 1)
        assert synonyms_of(config) == [("retention.ms", "7", 1)]
        if version >= 3:
            assert config.config_type == 5

    @pytest.mark.parametrize(
        ("resource_type", "name", "code", "message"),
        [
            (TOPIC, "nope", 3, ""),
            (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
            (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
            (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
            (LOGGER, "2", 42, "Unexpected broker id, expected 1 but received 2"),
            (LOGGER, "", 42, "Broker id must not be empty"),
            (GROUP, "", 42, "Group name must not be empty"),
            (0, "x", 42, MALFORMED),
            (99, "x", 42, MALFORMED),
        ],
    )
    def test_refusals(self, client: RawClient, resource_type: int, name: str, code: int, message: str) -> None:
        result = describe_configs(client, resource_type, name)
        assert (result.error_code, result.error_message, result.configs) == (code, message, ())
        assert (result.resource_type, result.resource_name) == (resource_type, name)

    def test_a_type_that_does_not_exist_spoils_the_request(self, client: RawClient) -> None:
        make(client, "t")
        resources = [
            {"resource_type": kind, "resource_name": "t", "configuration_keys": None} for kind in (TOPIC, 99, GROUP)
        ]
        results = client.ask(DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": False}).results
        assert [(result.error_code, result.error_message) for result in results] == [(42, MALFORMED)] * 3

    def test_an_answer_has_an_end(self, client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
        make(client, "t")
        monkeypatch.setattr(describe_configs_handler, "MOST_CONFIGS", 34)
        resources = [{"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}] * 4
        results = client.ask(DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": False}).results
        assert [(result.error_code, len(result.configs)) for result in results] == [(0, 33), (0, 33), (44, 0), (44, 0)]

    def test_many_resources(self, client: RawClient) -> None:
        make(client, "t")
        resources = [
            {"resource_type": TOPIC, "resource_name": name, "configuration_keys": ["retention.ms"]}
            for name in ["t", "nope"] * 20
        ]
        results = client.ask(DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": False}).results
        assert [(result.error_code, len(result.configs)) for result in results] == [(0, 1), (3, 0)] * 20

    def test_many_topics_are_looked_up_before_the_worker_thread(
        self, client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"t{number}" for number in range(12)]
        for number, name in enumerate(names):
            make(client, name, retention_ms=str(1000 + number))
        threads = set()
        by_name = broker.topics.by_name

        def watched(name: str) -> Any:
            threads.add(threading.current_thread())
            return by_name(name)

        monkeypatch.setattr(broker.topics, "by_name", watched)
        asked = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in [*names, "no"]]
        response = client.ask(DESCRIBE_CONFIGS, 4, {"resources": asked})
        *found, missing = response.results
        assert [told_of(result, "retention.ms").value for result in found] == [str(1000 + n) for n in range(12)]
        assert (missing.resource_name, missing.error_code) == ("no", 3)
        assert threads == {broker._thread}


class TestDescribeBrokers:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"num.partitions": 2, "log.retention.hours": 24}

    def test_all_names_of_kafka(self, client: RawClient, broker: Broker) -> None:
        result = describe_configs(client, BROKER, "1", synonyms=True, doc=True)
        names = {config.name for config in result.configs}
        assert len(names) == len(result.configs) == 340
        assert names <= BROKER_CONFIGS.keys() | KAFKA_NAMES
        assert all(config.documentation for config in result.configs)
        bound_at_start = {"listeners", "listener.security.protocol.map"}
        assert {config.name for config in result.configs if not config.read_only} == DYNAMIC_CONFIGS - bound_at_start
        secret = told_of(result, "ssl.key.password")
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)
        given = told_of(result, "num.partitions")
        assert (given.value, given.read_only, given.config_source) == ("2", True, 4)
        assert synonyms_of(given) == [("num.partitions", "2", 4), ("num.partitions", "1", 5)]
        assert (told_of(result, "node.id").value, told_of(result, "broker.id").value) == ("1", "1")
        listeners = told_of(result, "listeners")
        assert (listeners.value, listeners.config_source) == (f"PLAINTEXT://127.0.0.1:{broker.address.port}", 4)
        assert told_of(result, "log.retention.ms").value is None
        assert synonyms_of(told_of(result, "log.retention.ms")) == []

    def test_what_is_set_for_all(self, client: RawClient) -> None:
        make(client, "t")
        assert config_values(client, BROKER, "") == {"min.insync.replicas": "1"}
        assert alter(client, BROKER, "", ("log.retention.ms", SET, "500000")) == (0, None)
        result = describe_configs(client, BROKER, "", ["log.retention.ms"], synonyms=True)
        (config,) = result.configs
        assert (config.value, config.config_source) == ("500000", 3)
        assert synonyms_of(config) == [("log.retention.ms", "500000", 3)]

    def test_the_tables_agree(self) -> None:
        assert BROKER_CONFIGS.keys() | KAFKA_ONLY_CONFIGS.keys() >= DYNAMIC_CONFIGS
        assert ONE_BROKERS_CONFIGS | LISTENERS_CONFIGS <= DYNAMIC_CONFIGS
        assert KAFKA_ONLY_CONFIGS.keys() <= KAFKA_NAMES
        assert not KAFKA_ONLY_CONFIGS.keys() & BROKER_CONFIGS.keys()


class TestAlterTopics:
    @pytest.fixture(autouse=True)
    def topic(self, client: RawClient) -> None:
        make(client, "t")

    def test_set_and_delete(self, client: RawClient, broker: Broker) -> None:
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "5000"), ("segment.ms", SET, "9")) == (0, None)
        assert broker.store.partition("t", 0).config.retention_ms == 5000
        assert config_values(client, TOPIC, "t", "retention.ms", "segment.ms") == {
            "retention.ms": "5000",
            "segment.ms": "9",
        }
        assert alter(client, TOPIC, "t", ("retention.ms", DELETE, None), ("nope", DELETE, None)) == (0, None)
        assert broker.store.topic_overrides("t") == {"segment.ms": "9"}
        assert broker.store.partition("t", 0).config.retention_ms == 604800000

    def test_lists_grow_and_shrink(self, client: RawClient) -> None:
        def policy() -> str | None:
            return config_values(client, TOPIC, "t", "cleanup.policy")["cleanup.policy"]

        for operation, value, expected in [
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "nope", "compact"),
            (SUBTRACT, "compact", ""),
        ]:
            assert alter(client, TOPIC, "t", ("cleanup.policy", operation, value)) == (0, None)
            assert policy() == expected

    @pytest.mark.parametrize(
        ("operation", "code", "message"),
        [
            (("nope", SET, "1"), 40, "Unknown topic config name: nope"),
            (("", SET, "1"), 40, "Unknown topic config name: "),
            (
                ("retention.ms", SET, "x"),
                40,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                ("retention.ms", SET, "-9"),
                40,
                "Invalid value -9 for configuration retention.ms: Value must be at least -1",
            ),
            (
                ("segment.bytes", SET, "99999999999"),
                40,
                "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
            ),
            (
                ("preallocate", SET, "maybe"),
                40,
                "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
            ),
            (
                ("min.cleanable.dirty.ratio", SET, "1.5"),
                40,
                "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
            ),
            (
                ("compression.type", SET, "zzz"),
                40,
                "Invalid value zzz for configuration compression.type: String must be one of: uncompressed, zstd, lz4,"
                " snappy, gzip, producer",
            ),
            (
                ("compression.gzip.level", SET, "0"),
                40,
                "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to"
                " -1",
            ),
            (
                ("compression.lz4.level", SET, "18"),
                40,
                "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
            ),
            (
                ("cleanup.policy", APPEND, "zzz"),
                40,
                "Invalid value zzz for configuration cleanup.policy: String must be one of: compact, delete",
            ),
            (("cleanup.policy", SET, "delete,"), 40, "Configuration 'cleanup.policy' values must not be empty."),
            (
                ("leader.replication.throttled.replicas", SET, "a:b"),
                40,
                "Invalid value [a:b] for configuration leader.replication.throttled.replicas:"
                " leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following"
                " format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            ),
            (("retention.ms", APPEND, "5"), 40, "Can't APPEND to key retention.ms because its type is not LIST."),
            (("nope", SUBTRACT, "5"), 40, "Can't SUBTRACT to key nope because its type is not LIST."),
            (("retention.ms", SET, None), 42, "Null value not supported for : retention.ms"),
            (("cleanup.policy", APPEND, None), 42, "Null value not supported for : cleanup.policy"),
            (("retention.ms", 9, "5"), -1, None),
        ],
    )
    def test_refusals(
        self, client: RawClient, broker: Broker, operation: tuple[str, int, str | None], code: int, message: str | None
    ) -> None:
        for validate_only in (True, False):
            assert alter(client, TOPIC, "t", operation, validate_only=validate_only) == (code, message)
        assert broker.store.topic_overrides("t") == {}

    @pytest.mark.parametrize(
        ("name", "key", "code", "message"),
        [
            ("nope", "retention.ms", 3, "The topic 'nope' does not exist."),
            ("nope", "zzz", 40, "Unknown topic config name: zzz"),
            ("", "retention.ms", 42, "Default topic resources are not allowed."),
            ("..", "retention.ms", 17, "Topic name is invalid: '..' is not allowed"),
        ],
    )
    def test_topics_that_are_not_there(self, client: RawClient, name: str, key: str, code: int, message: str) -> None:
        assert alter(client, TOPIC, name, (key, SET, "77")) == (code, message)

    def test_only_validated(self, client: RawClient, broker: Broker) -> None:
        assert alter(client, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True) == (0, None)
        assert broker.store.topic_overrides("t") == {}

    def test_a_config_or_a_resource_named_twice(self, client: RawClient, broker: Broker) -> None:
        told = alter(client, TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
        assert told == (42, "Error due to duplicate config keys")
        resource = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource, resource], "validate_only": False})
        assert [(each.error_code, each.error_message) for each in answer.responses] == [
            (42, "Each resource must appear at most once.")
        ] * 2
        assert broker.store.topic_overrides("t") == {}

    @pytest.mark.parametrize("version", [0, 1])
    def test_each_resource_is_independent(self, client: RawClient, broker: Broker, version: int) -> None:
        make(client, "u")

        def resource(resource_type: int, name: str, value: str) -> dict[str, Any]:
            configs = [{"name": "segment.ms", "config_operation": SET, "value": value}]
            return {"resource_type": resource_type, "resource_name": name, "configs": configs}

        resources = [
            resource(TOPIC, "t", "z"),
            resource(TOPIC, "nope", "5"),
            resource(3, "x", "5"),
            resource(TOPIC, "u", "5"),
        ]
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS, version, {"resources": resources, "validate_only": False})
        assert [each.error_code for each in answer.responses] == [40, 3, 42, 0]
        assert answer.responses[2].error_message == "Unknown resource type 3"
        assert broker.store.topic_overrides("u") == {"segment.ms": "5"}


class TestAlterBrokers:
    def test_topics_follow_at_once(self, client: RawClient, broker: Broker) -> None:
        make(client, "t")
        make(client, "own", retention_ms="9")
        assert alter(client, BROKER, "", ("log.retention.ms", SET, "500000")) == (0, None)
        assert broker.store.partition("t", 0).config.retention_ms == 500_000
        assert broker.store.partition("own", 0).config.retention_ms == 9
        (config,) = describe_configs(client, TOPIC, "t", ["retention.ms"], synonyms=True).configs
        assert (config.value, config.config_source) == ("500000", 3)
        assert synonyms_of(config) == [("log.retention.ms", "500000", 3), ("log.retention.hours", "168", 5)]
        assert alter(client, BROKER, "1", ("log.retention.ms", SET, "400000")) == (0, None)
        (config,) = describe_configs(client, BROKER, "1", ["log.retention.ms"], synonyms=True).configs
        assert (config.value, config.config_source, config.read_only) == ("400000", 2, False)
        assert synonyms_of(config)[:2] == [("log.retention.ms", "400000", 2), ("log.retention.ms", "500000", 3)]
        assert broker.store.partition("t", 0).config.retention_ms == 400_000
        for name in ("1", ""):
            assert alter(client, BROKER, name, ("log.retention.ms", DELETE, None)) == (0, None)
        assert broker.store.partition("t", 0).config.retention_ms == 604_800_000

    @pytest.mark.parametrize(
        ("name", "operation", "code", "message"),
        [
            ("1", ("num.partitions", SET, "2"), 42, "Cannot update these configs dynamically: [num.partitions]"),
            ("", ("num.partitions", DELETE, None), 42, "Cannot update these configs dynamically: [num.partitions]"),
            ("1", ("listeners", SET, "PLAINTEXT://:1"), 42, "Cannot update these configs dynamically: [listeners]"),
            (
                "",
                ("listeners", SET, "PLAINTEXT://:1"),
                42,
                "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
            ),
            (
                "1",
                ("ssl.key.password", SET, "x"),
                42,
                "These security configs can be dynamically updated only per-listener using the listener prefix:"
                " [ssl.key.password]",
            ),
            (
                "1",
                ("log.cleaner.threads", SET, "x"),
                42,
                "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
            ),
            (
                "1",
                ("log.cleaner.threads", APPEND, "2"),
                40,
                "Config value append is not allowed for config key: log.cleaner.threads",
            ),
            (
                "",
                ("min.insync.replicas", DELETE, None),
                40,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            ),
            (
                "1",
                ("min.insync.replicas", SET, "1"),
                40,
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            ),
            (
                "",
                ("log.cleaner.dedupe.buffer.size", SET, "5"),
                42,
                "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
            ),
            ("1", ("nope", APPEND, "5"), 40, "Unknown config name: nope"),
            ("2", ("log.retention.ms", SET, "1"), 42, "Unexpected broker id, expected 1, but received 2"),
            ("x", ("log.retention.ms", SET, "1"), 42, "Node id must be an integer, but it is: x"),
        ],
    )
    def test_refusals(
        self, client: RawClient, name: str, operation: tuple[str, int, str | None], code: int, message: str
    ) -> None:
        for validate_only in (True, False):
            assert alter(client, BROKER, name, operation, validate_only=validate_only) == (code, message)

    def test_lists_keep_their_order(self, client: RawClient) -> None:
        make(client, "t")
        name, topics = "log.cleanup.policy", "cleanup.policy"
        assert alter(client, BROKER, "1", (name, APPEND, "compact")) == (0, None)
        assert config_values(client, BROKER, "1", name) == {name: "delete,compact"}
        assert config_values(client, TOPIC, "t", topics) == {topics: "delete,compact"}
        assert alter(client, BROKER, "1", (name, SUBTRACT, "delete")) == (0, None)
        assert config_values(client, TOPIC, "t", topics) == {topics: "compact"}

    def test_a_key_named_twice(self, client: RawClient) -> None:
        told = alter(client, BROKER, "2", ("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2"))
        assert told == (42, "Error due to duplicate config keys")

    def test_unknown_names_are_kept(self, client: RawClient, broker: Broker) -> None:
        assert alter(client, BROKER, "1", ("a.plugins.own", SET, "2")) == (0, None)
        assert broker.store.configs_of(BROKER_RESOURCE, "1") == {"a.plugins.own": "2"}

    def test_but_not_any_number_of_them(self, client: RawClient, broker: Broker) -> None:
        many = [(f"plugin.{number}", SET, "1") for number in range(1001)]
        assert alter(client, BROKER, "1", *many) == (44, "A broker may have 1000 configs at most.")
        assert broker.store.configs_of(BROKER_RESOURCE, "1") == {}

    def test_in_force_after_a_restart(self, tmp_path: Any) -> None:
        for expected in (None, "600000"):
            with Broker(str(tmp_path)) as broker:
                broker.start()
                client = RawClient("127.0.0.1", broker.address.port)
                assert config_values(client, BROKER, "1", "log.retention.ms") == {"log.retention.ms": expected}
                assert alter(client, BROKER, "1", ("log.retention.ms", SET, "600000")) == (0, None)
                client.close()


class TestLoggers:
    @pytest.fixture(autouse=True)
    def as_before(self) -> Iterator[None]:
        logger = logging.getLogger("duralog.broker")
        before = logger.level
        yield
        logger.setLevel(before)

    def test_levels_are_shown_and_set(self, client: RawClient) -> None:
        assert alter(client, LOGGER, "1", ("duralog.broker", SET, "ERROR")) == (0, None)
        assert logging.getLogger("duralog.broker").level == logging.ERROR
        (config,) = describe_configs(client, LOGGER, "1", ["duralog.broker"]).configs
        assert (config.value, config.config_source, config.config_type) == ("ERROR", 6, 0)
        assert "root" in config_values(client, LOGGER, "1")
        assert alter(client, LOGGER, "1", ("duralog.broker", DELETE, None)) == (0, None)
        assert logging.getLogger("duralog.broker").level == logging.NOTSET

    @pytest.mark.parametrize(
        ("name", "operation", "code", "message"),
        [
            ("1", ("nope.x", SET, "INFO"), 40, "Logger nope.x does not exist!"),
            (
                "1",
                ("root", SET, "LOUD"),
                40,
                "Cannot set the log level of root to LOUD as it is not a supported log level. Valid log levels are"
                " DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
            ("1", ("root", DELETE, None), 42, "Removing the log level of the root logger is not allowed"),
            ("1", ("root", APPEND, "INFO"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
            ("2", ("root", SET, "INFO"), 42, "Unexpected node id. Expected 1, but received 2"),
            ("", ("root", SET, "INFO"), 42, "Node id must be an integer, but it is: "),
        ],
    )
    def test_refusals(
        self, client: RawClient, name: str, operation: tuple[str, int, str | None], code: int, message: str
    ) -> None:
        assert alter(client, LOGGER, name, operation) == (code, message)


class TestGroups:
    def test_they_go_by_the_broker_until_they_set_their_own(self, client: RawClient) -> None:
        name = "consumer.session.timeout.ms"
        result = describe_configs(client, GROUP, "g", synonyms=True)
        assert len(result.configs) == 17
        assert synonyms_of(told_of(result, name)) == [("group.consumer.session.timeout.ms", "45000", 5)]
        assert synonyms_of(told_of(result, "share.isolation.level")) == [
            ("share.isolation.level", "read_uncommitted", 5)
        ]
        assert alter(client, GROUP, "g", (name, SET, "50000")) == (0, None)
        config = told_of(describe_configs(client, GROUP, "g", synonyms=True), name)
        assert (config.value, config.config_source) == ("50000", 8)
        assert synonyms_of(config) == [(name, "50000", 8), ("group.consumer.session.timeout.ms", "45000", 5)]
        assert config_values(client, GROUP, "h", name) == {name: "45000"}
        assert alter(client, GROUP, "g", (name, DELETE, None)) == (0, None)
        assert config_values(client, GROUP, "g", name) == {name: "45000"}

    @pytest.mark.parametrize(
        ("group", "operation", "code", "message"),
        [
            ("", ("consumer.session.timeout.ms", SET, "50000"), 42, "Default group resources are not allowed."),
            ("g", ("nope", SET, "5"), 40, "Unknown group config name: nope"),
            (
                "g",
                ("consumer.session.timeout.ms", SET, "5"),
                40,
                "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
            ),
            (
                "g",
                ("consumer.heartbeat.interval.ms", SET, "999999"),
                40,
                "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
            ),
            (
                "g",
                ("consumer.session.timeout.ms", SET, "long"),
                40,
                "Invalid value long for configuration consumer.session.timeout.ms: Not a number of type INT",
            ),
            (
                "g",
                ("consumer.session.timeout.ms", APPEND, "1"),
                40,
                "Can't APPEND to key consumer.session.timeout.ms because its type is not LIST.",
            ),
            (
                "g",
                ("share.session.timeout.ms", SET, "1"),
                40,
                "share.session.timeout.ms must be greater than or equal to group.share.min.session.timeout.ms",
            ),
            (
                "g",
                ("streams.num.standby.replicas", SET, "99"),
                40,
                "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
            ),
            (
                "g",
                ("streams.initial.rebalance.delay.ms", SET, "-1"),
                40,
                "Invalid value -1 for configuration streams.initial.rebalance.delay.ms: Value must be at least 0",
            ),
            (
                "g",
                ("share.isolation.level", SET, "zzz"),
                40,
                "Invalid value zzz for configuration share.isolation.level: String must be one of: read_committed,"
                " read_uncommitted",
            ),
            (
                "g",
                ("share.renew.acknowledge.enable", SET, "zzz"),
                40,
                "Invalid value zzz for configuration share.renew.acknowledge.enable: Expected value to be either true"
                " or false",
            ),
            (
                "g",
                ("share.auto.offset.reset", SET, "zzz"),
                40,
                "Invalid value zzz for configuration share.auto.offset.reset: Invalid value `zzz` for configuration"
                " share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format"
                " 'by_duration:<PnDTnHnMn.nS>'.",
            ),
        ],
    )
    def test_refusals(
        self, client: RawClient, group: str, operation: tuple[str, int, str | None], code: int, message: str
    ) -> None:
        assert alter(client, GROUP, group, operation) == (code, message)


def replace_all(
    client: RawClient,
    resource_type: int,
    name: str,
    configs: list[tuple[str, str | None]],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    named = [{"name": key, "value": value} for key, value in configs]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": named}
    answer = client.ask(ALTER_CONFIGS, version, {"resources": [resource], "validate_only": validate_only})
    return answer.responses[0].error_code, answer.responses[0].error_message


class TestReplaceAll:
    @pytest.mark.parametrize("version", range(3))
    def test_what_is_not_named_goes(self, client: RawClient, broker: Broker, version: int) -> None:
        make(client, "t", retention_ms="5", segment_ms="6")
        assert replace_all(client, TOPIC, "t", [("segment.ms", "70000")], version=version) == (0, None)
        assert broker.store.topic_overrides("t") == {"segment.ms": "70000"}
        assert replace_all(client, TOPIC, "t", [], version=version, validate_only=True) == (0, None)
        assert broker.store.topic_overrides("t") == {"segment.ms": "70000"}
        assert replace_all(client, TOPIC, "t", [], version=version) == (0, None)
        assert broker.store.topic_overrides("t") == {}

    @pytest.mark.parametrize(
        ("resource_type", "name", "configs", "code", "message"),
        [
            (TOPIC, "t", [("segment.ms", None)], 42, "Null value not supported for : segment.ms"),
            (TOPIC, "t", [("nope", "1")], 40, "Unknown topic config name: nope"),
            (TOPIC, "t", [("segment.ms", "1"), ("segment.ms", "2")], 42, "Error due to duplicate config keys"),
            (TOPIC, "nope", [], 3, "The topic 'nope' does not exist."),
            (LOGGER, "1", [("root", "INFO")], 42, "Unknown resource type 8"),
            (BROKER, "1", [("num.partitions", "2")], 42, "Cannot update these configs dynamically: [num.partitions]"),
            (
                BROKER,
                "",
                [("log.retention.ms", "600000")],
                40,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            ),
        ],
    )
    def test_refusals(
        self,
        client: RawClient,
        broker: Broker,
        resource_type: int,
        name: str,
        configs: list[tuple[str, str | None]],
        code: int,
        message: str,
    ) -> None:
        make(client, "t", retention_ms="5")
        assert replace_all(client, resource_type, name, configs) == (code, message)
        assert broker.store.topic_overrides("t") == {"retention.ms": "5"}

    def test_a_resource_named_twice(self, client: RawClient) -> None:
        resource = {"resource_type": TOPIC, "resource_name": "t", "configs": []}
        answer = client.ask(ALTER_CONFIGS, 2, {"resources": [resource, resource], "validate_only": False})
        assert [each.error_code for each in answer.responses] == [42, 42]
