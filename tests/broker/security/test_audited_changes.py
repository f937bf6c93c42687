"""Changes by clients and by the broker in the audit log. Failed changes are limited: they need no permission."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.audit.log import read_last, refusals_of
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address, WebAddress
from duralog.broker.security.web_users import WebUsers
from duralog.config import BrokerConfig
from duralog.config.server_settings import STANDARD_AUTHORIZER
from tests.support.broker.raw_client import RawClient
from tests.support.broker.registry_client import RegistryClient
from tests.support.waiting import wait_until

FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS = 10, 19, 20, 44
MANY = 5_000


@pytest.fixture
def secured(tmp_path: Path, audit_file: Path) -> Iterator[Broker]:
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "duralog.audit.log.file": str(audit_file),
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 3,
    }
    with Broker(str(tmp_path / "data"), config=BrokerConfig.of(config)) as broker:
        yield broker.start()


def entries_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def create(client: RawClient, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    assert client.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 9000}).topics[0].error_code == 0


def unknown_ids() -> dict[str, object]:
    return {"topics": [{"name": None, "topic_id": uuid.uuid4()} for _ in range(MANY)], "timeout": 9000}


def unknown_resources(resource_type: Callable[[int], int]) -> dict[str, object]:
    resources = [
        {"resource_type": resource_type(number), "resource_name": f"{number:0900}", "configs": []}
        for number in range(MANY)
    ]
    return {"resources": resources, "validate_only": False}


def test_without_permissions_the_changes_stay(
    secured: Broker, connected: Callable[[str], RawClient], audit_file: Path
) -> None:
    admin, eve = connected("ANONYMOUS"), connected("eve")
    create(admin, "first")
    eve.ask(DELETE_TOPICS, 6, unknown_ids())
    eve.ask(ALTER_CONFIGS, 1, unknown_resources(lambda _: 99))
    eve.ask(ALTER_CONFIGS, 1, unknown_resources(lambda _: 0))
    eve.ask(ALTER_CONFIGS, 1, unknown_resources(lambda number: (number + 40) % 88 + 33))
    create(admin, "last")
    secured.stop()
    assert [(each["event"], each["resource"]) for each in entries_of(audit_file)] == [
        ("change", "first"),
        ("change", "last"),
    ]
    failures = entries_of(refusals_of(audit_file))
    assert {(each["event"], each["principal"]) for each in failures} == {("failure", "User:eve")}
    assert [(each["api"], each["result"], each["count"]) for each in failures] == [
        ("DeleteTopics", "UNKNOWN_TOPIC_ID", MANY),
        *[("IncrementalAlterConfigs", "INVALID_REQUEST", MANY)] * 3,
    ]
    assert refusals_of(audit_file).stat().st_size < 10_000
    assert secured.audit is not None
    assert secured.audit.log.dropped == 0


def test_a_burst_of_failing_requests_is_limited(
    secured: Broker, connected: Callable[[str], RawClient], audit_file: Path
) -> None:
    admin, eve = connected("ANONYMOUS"), connected("eve")
    for _ in range(1_000):
        eve.ask(DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": uuid.uuid4()}], "timeout": 9000})
    create(admin, "there")
    secured.stop()
    assert [each["resource"] for each in entries_of(audit_file)] == ["there"]
    failures = entries_of(refusals_of(audit_file))
    named = [each for each in failures if each["event"] == "failure"]
    assert 100 <= len(named) < 1_000
    assert named[0]["detail"].startswith("id ")
    assert len(named) + sum(each["count"] for each in failures if each["event"] == "dropped") == 1_000


@pytest.mark.parametrize(
    ("key_type", "topic", "partitions"), [(0, "__consumer_offsets", 2), (1, "__transaction_state", 3)]
)
def test_internal_topics_are_audited(
    connected: Callable[[str], RawClient], audit_file: Path, key_type: int, topic: str, partitions: int
) -> None:
    client = connected("ANONYMOUS")
    for _ in range(2):
        client.ask(FIND_COORDINATOR, 3, {"key": "group", "key_type": key_type})
    wait_until(lambda: bool(read_last(audit_file, 1)))
    (entry,) = read_last(audit_file, 10)
    assert (entry["event"], entry["api"], entry["principal"]) == ("change", "FindCoordinator", "User:ANONYMOUS")
    assert (entry["resource"], entry["detail"]) == (topic, f"{partitions} partitions")


def test_changes_through_the_schema_registry_are_audited(tmp_path: Path, audit_file: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ci change token${hashlib.sha256(b'secret').hexdigest()}\n")
    users.chmod(0o600)
    place = WebAddress(Address("127.0.0.1", 0), users=WebUsers(str(users)))
    config = BrokerConfig.of({"duralog.audit.log.file": str(audit_file)})
    text = {"schema": '"int"'}
    with Broker(str(tmp_path / "data"), config=config, schema_registry=place) as broker:
        client = RegistryClient(broker.start())
        asked: list[tuple[str, str, Any]] = [
            ("PUT", "/config", {"compatibility": "FULL"}),
            ("POST", "/subjects/a/versions", text),
            # Nothing is changed by these.
            ("POST", "/subjects/a/versions", text),
            ("POST", "/subjects/a", text),
            ("GET", "/subjects", None),
            ("POST", "/compatibility/subjects/a/versions", text),
            ("POST", "/subjects/a/versions", {"schema": '"string"'}),
            ("PUT", "/mode/a", {"mode": "READWRITE"}),
            ("DELETE", "/mode/a", None),
            ("DELETE", "/subjects/a/versions/1", None),
            ("DELETE", "/subjects/a?permanent=true", None),
            ("DELETE", "/subjects/a", None),
        ]
        for method, path, body in asked:
            client.ask(method, path, body, {"Authorization": "Bearer secret"})
    topic, *entries = reversed([each for each in read_last(audit_file, 20) if each["event"] == "change"])
    assert (topic["api"], topic["principal"]) == ("schema registry", None)
    assert (topic["resource"], topic["result"], topic["detail"]) == ("_schemas", "NONE", "1 partitions")
    assert {(each["principal"], each["host"], each["listener"], each["result"]) for each in entries} == {
        ("User:ci", "127.0.0.1", "schema-registry", "NONE")
    }
    assert [(each["api"], each["resource_type"], each["resource"], each["detail"]) for each in entries] == [
        ("SetSchemaConfig", "SCHEMA_REGISTRY", None, "compatibility=FULL"),
        ("RegisterSchema", "SUBJECT", "a", "version 1, id 1"),
        ("SetSchemaMode", "SUBJECT", "a", "READWRITE"),
        ("ResetSchemaMode", "SUBJECT", "a", "was READWRITE"),
        ("DeleteSchemaVersion", "SUBJECT", "a", "version 1"),
        ("DeleteSubject", "SUBJECT", "a", "1 versions for good"),
    ]
    failed = [(each["event"], each["api"], each["result"]) for each in read_last(refusals_of(audit_file), 20)]
    assert failed[::-1] == [("failure", "RegisterSchema", "409"), ("failure", "DeleteSubject", "40401")]
