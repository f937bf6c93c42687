"""ACLs by the tools that people use, and in a directory that Kafka and duralog serve in turn."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import duralog
from duralog import Record
from duralog.command_line import app
from duralog.format import record_batch
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import KafkaServer
from tests.support.interop.senders import AUTHORIZED, asked, kafka_client, sasl_settings
from tests.support.interop.served_directory import ServedDirectory

pytestmark = pytest.mark.interop

PRODUCE, CREATE_ACLS, ALTER_CLIENT_QUOTAS = 0, 30, 49
NONE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED = 0, 3, 6, 29
TOOL = "org.apache.kafka.tools.AclCommand"
READ_ORDERS = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW)
SEE_LOGS = Acl(ResourceType.TOPIC, "log", PatternType.PREFIXED, "User:*", "*", Operation.DESCRIBE, Permission.ALLOW)
NO_LOG_1 = Acl(ResourceType.TOPIC, "log-1", PatternType.LITERAL, "User:bob", "*", Operation.ALL, Permission.DENY)
ADMIN = Acl(
    ResourceType.CLUSTER,
    "kafka-cluster",
    PatternType.LITERAL,
    "User:CN=x,O=y",
    "10.0.0.1",
    Operation.IDEMPOTENT_WRITE,
    Permission.ALLOW,
)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    directory = tmp_path_factory.mktemp("acl-tools") / "data"
    with ServedDirectory(directory, configs=AUTHORIZED) as broker:
        yield broker
        assert broker.errors == []


def write_to(topic: str, name: str) -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, f"User:{name}", "*", Operation.WRITE, Permission.ALLOW)


def produced(server: KafkaServer | ServedDirectory, name: str, topic: str) -> tuple[int, bool]:
    """The error of a request of 20 kB, once the partition has a leader, and whether the client is to wait."""
    batch = record_batch.encode([Record(value=bytes(20_000), timestamp_ms=0)])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    for _ in range(200):
        with kafka_client(server, name) as client:
            answer = asked(client, PRODUCE, 9, {"acks": 1, "timeout": 30_000, "topic_data": data})
        code = answer["responses"][0]["partition_responses"][0]["error_code"]
        if code not in (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER):
            return code, answer["throttle_time"] > 0
        time.sleep(0.05)
    raise AssertionError(f"{topic} has no leader")


def listed(*arguments: str) -> list[dict[str, str]]:
    result = CliRunner().invoke(app, ["acl", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_kafka_acls_adds_lists_and_removes(kafka: KafkaProcess, secured: ServedDirectory) -> None:
    place = ("--bootstrap-server", secured.bootstrap)
    choice = ("--allow-principal", "User:ana", "--consumer", "--topic", "orders", "--group", "etl")
    status, out, err = kafka.tool(TOOL, *place, "--add", *choice)
    assert (status, err) == (0, ""), (out, err)
    status, out, err = kafka.tool(TOOL, *place, "--list", "--topic", "orders")
    assert status == 0, err
    assert "principal=User:ana, host=*, operation=READ, permissionType=ALLOW" in out
    assert [(each["resource_type"], each["operation"]) for each in listed("list", secured.bootstrap)] == [
        ("topic", "read"),
        ("topic", "describe"),
        ("group", "read"),
    ]
    status, out, err = kafka.tool(TOOL, *place, "--remove", "--force", *choice)
    assert status == 0, err
    assert listed("list", secured.bootstrap) == []


def test_duralog_acl_on_a_broker_is_as_in_a_directory(secured: ServedDirectory, tmp_path: Path) -> None:
    with duralog.open(tmp_path / "data") as store:
        store.create_topic("orders")
    results = []
    for place in (secured.bootstrap, str(tmp_path / "data")):
        steps = [
            ("add", place, "--allow-principal", "User:p", "--producer", "--idempotent", "--topic", "orders"),
            ("add", place, "--deny-principal", "User:p", "--topic", "ord", "--resource-pattern-type", "prefixed"),
            ("list", place, "--topic", "orders", "--resource-pattern-type", "match"),
            ("list", place, "--principal", "User:nobody"),
            ("remove", place, "--topic", "orders", "--operation", "write", "--yes"),
            ("remove", place, "--topic", "orders", "--resource-pattern-type", "match", "--yes"),
            ("remove", place, "--cluster", "--yes"),
            ("list", place),
        ]
        results.append([listed(*step) for step in steps])
    assert results[0] == results[1]
    assert [len(step) for step in results[0]] == [4, 1, 4, 0, 1, 3, 1, 0]


def test_kafka_and_duralog_take_entries_over_from_each_other(kafka: KafkaProcess, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with duralog.open(directory) as store:
        for name in ("orders", "log-1", "log-2", "secret"):
            store.create_topic(name, 1)
        store.create_acls([READ_ORDERS, SEE_LOGS, NO_LOG_1, ADMIN])
        store.delete_acls([])
    with KafkaServer(kafka, directory, configs={**AUTHORIZED, **sasl_settings()}) as server:
        with kafka_client(server, "bob") as bob:
            for _ in range(200):
                topics = asked(bob, 3, 9, {"topics": None})["topics"]
                if topics:
                    break
            assert sorted(topic["name"] for topic in topics) == ["log-2", "orders"]
        with kafka_client(server, "admin") as admin:
            more = {**ADMIN._replace(operation=Operation.ALTER)._asdict()}
            more["resource_pattern_type"] = more.pop("pattern_type")
            assert asked(admin, 30, 3, {"creations": [more]})["results"][0]["error_code"] == 0
            removed = asked(
                admin,
                31,
                3,
                {
                    "filters": [
                        {
                            "resource_type_filter": 2,
                            "resource_name_filter": "orders",
                            "pattern_type_filter": 3,
                            "principal_filter": None,
                            "host_filter": None,
                            "operation": 1,
                            "permission_type": 1,
                        }
                    ]
                },
            )
            assert len(removed["filter_results"][0]["matching_acls"]) == 1
    with duralog.open(directory, read_only=True) as store:
        assert set(store.acls) == {SEE_LOGS, NO_LOG_1, ADMIN, ADMIN._replace(operation=Operation.ALTER)}
    with (
        ServedDirectory(
            directory, configs={**AUTHORIZED, **sasl_settings(), "listeners": "PLAINTEXT://127.0.0.1:0"}, listen=None
        ) as broker,
        kafka_client(broker, "bob") as bob,
    ):
        topics = asked(bob, 3, 9, {"topics": None})["topics"]
        assert [topic["name"] for topic in topics] == ["log-2"]


def test_kafka_and_duralog_enforce_what_the_other_has_stored(kafka: KafkaProcess, tmp_path: Path) -> None:
    """Permissions to write, and the quotas of who may: one half set by duralog, the other by Kafka."""
    directory = tmp_path / "data"
    with duralog.open(directory) as store:
        for name in ("orders", "bills"):
            store.create_topic(name, 1)
        store.create_acls([write_to("orders", "bob")])
        store.alter_client_quotas({frozenset({("user", "bob")}): {"producer_byte_rate": 1000.0}})
    with KafkaServer(kafka, directory, configs={**AUTHORIZED, **sasl_settings()}) as server:
        assert produced(server, "bob", "orders") == (NONE, True)
        assert produced(server, "bob", "bills")[0] == TOPIC_AUTHORIZATION_FAILED
        with kafka_client(server, "admin") as admin:
            allowed = write_to("bills", "alice")._asdict()
            allowed["resource_pattern_type"] = allowed.pop("pattern_type")
            assert asked(admin, CREATE_ACLS, 3, {"creations": [allowed]})["results"][0]["error_code"] == NONE
            for name, key, value in (("bob", "producer_byte_rate", None), ("alice", "producer_byte_rate", 1000.0)):
                ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
                entry = {"entity": [{"entity_type": "user", "entity_name": name}], "ops": ops}
                answer = asked(admin, ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})
                assert answer["entries"][0]["error_code"] == NONE
    configs = {**AUTHORIZED, **sasl_settings(), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with ServedDirectory(directory, configs=configs, listen=None) as broker:
        assert produced(broker, "bob", "orders") == (NONE, False)
        assert produced(broker, "bob", "bills")[0] == TOPIC_AUTHORIZATION_FAILED
        assert produced(broker, "alice", "bills") == (NONE, True)
        assert produced(broker, "alice", "orders")[0] == TOPIC_AUTHORIZATION_FAILED
