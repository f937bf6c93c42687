"""The gate in front of the handlers: every API has a rule, and what it costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from duralog.broker.audit.changes import CHANGES
from duralog.broker.audit.log import read_last
from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.authorization.gate import Gate
from duralog.broker.authorization.rules import RULES
from duralog.broker.broker import Broker
from duralog.broker.handlers import load_apis
from duralog.broker.wire.principal import Principal
from duralog.broker.wire.request import Request
from duralog.config import BrokerConfig
from duralog.config.server_settings import STANDARD_AUTHORIZER
from duralog.errors import InvalidConfig, StorageError
from duralog.format import record_batch
from duralog.format.record import Record
from duralog.storage.metadata.acls import OPERATIONS_OF, Acl, Operation, PatternType, Permission, ResourceType
from tests.support.broker.raw_client import RawClient
from tests.support.waiting import wait_until

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 19, 20
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, HEARTBEAT = 29, 30, 31, 68
FIND_COORDINATOR = 10
REFUSED = 29
INVALID_REQUEST = 42
SECURITY_DISABLED = 54
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
READER = Acl(ResourceType.TOPIC, "seen", PatternType.LITERAL, "User:ana", "*", Operation.READ, Permission.ALLOW)


def creation(acl: Acl) -> dict[str, object]:
    fields: dict[str, object] = acl._asdict()
    pattern_type = fields.pop("pattern_type")
    return {**fields, "resource_pattern_type": pattern_type}


def test_every_api_has_a_rule() -> None:
    assert {api.name for api in load_apis().values()} <= RULES.keys()
    assert CHANGES.keys() <= RULES.keys()


def test_without_authorizer_and_audit_log_no_handler_is_wrapped() -> None:
    gate = Gate(None, None)
    for api in load_apis().values():
        assert gate(api, api.handle) is api.handle


class TestWithoutAuthorizer:
    def test_acls_are_answered_as_disabled(self, client: RawClient) -> None:
        assert client.ask(DESCRIBE_ACLS, 3, ANYTHING).error_code == SECURITY_DISABLED
        (created,) = client.ask(CREATE_ACLS, 3, {"creations": [creation(READER)]}).results
        assert created.error_code == SECURITY_DISABLED
        (deleted,) = client.ask(DELETE_ACLS, 3, {"filters": [ANYTHING]}).filter_results
        assert deleted.error_code == SECURITY_DISABLED


@pytest.mark.parametrize(
    "values",
    [{"authorizer.class.name": "com.example.Own"}, {"super.users": "root"}, {"super.users": "User:a;b"}],
)
def test_what_cannot_be_configured(values: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfig.of(values)


@pytest.fixture
def secured(tmp_path: Path, audit_file: Path) -> Iterator[Broker]:
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "duralog.audit.log.file": str(audit_file),
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with Broker(str(tmp_path / "data"), config=BrokerConfig.of(config)) as broker:
        yield broker.start()


def create(client: RawClient, *names: str) -> None:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    assert all(
        each.error_code == 0 for each in client.ask(CREATE_TOPICS, 7, {"topics": topics, "timeout": 9000}).topics
    )


def fetch(
    client: RawClient, *names: str, session: tuple[int, int] = (0, -1), forgotten: bool = False
) -> dict[str, int]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [] if forgotten else [{"topic": name, "partitions": [partition]} for name in names],
    }
    answer = client.ask(FETCH, 11, asked)
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses} | {"session": answer.session_id}


def test_a_change_of_the_entries_counts_at_once(connected: Callable[[str], RawClient]) -> None:
    admin, ana = connected("ANONYMOUS"), connected("ana")
    create(admin, "seen", "hidden")
    assert fetch(ana, "seen", "hidden", "missing") == {"seen": 29, "hidden": 29, "missing": 29, "session": 0}
    admin.ask(CREATE_ACLS, 3, {"creations": [creation(READER)]})
    assert fetch(ana, "seen", "hidden") == {"seen": 0, "hidden": 29, "session": 0}
    assert [topic.name for topic in ana.ask(METADATA, 9, {"topics": None}).topics] == ["seen"]
    admin.ask(DELETE_ACLS, 3, {"filters": [ANYTHING]})
    assert fetch(ana, "seen") == {"seen": 29, "session": 0}


def test_a_fetch_session_does_not_outlive_the_permission(connected: Callable[[str], RawClient]) -> None:
    admin, ana = connected("ANONYMOUS"), connected("ana")
    create(admin, "seen")
    admin.ask(CREATE_ACLS, 3, {"creations": [creation(READER)]})
    first = fetch(ana, "seen", session=(0, 0))
    assert first.pop("seen") == 0
    assert first["session"]
    admin.ask(DELETE_ACLS, 3, {"filters": [ANYTHING]})
    assert fetch(ana, session=(first["session"], 1), forgotten=True)["seen"] == REFUSED


def test_produce_serves_what_is_allowed(connected: Callable[[str], RawClient]) -> None:
    admin, ana = connected("ANONYMOUS"), connected("ana")
    create(admin, "seen", "hidden")
    writer = READER._replace(operation=Operation.WRITE)
    admin.ask(CREATE_ACLS, 3, {"creations": [creation(writer)]})
    batch = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=1)])
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in ("seen", "hidden")]
    answer = ana.ask(PRODUCE, 9, {"acks": -1, "timeout": 9000, "topic_data": data})
    assert {each.name: each.partition_responses[0].error_code for each in answer.responses} == {"seen": 0, "hidden": 29}


def test_a_pattern_subscribes_to_topics_that_are_seen(secured: Broker, connected: Callable[[str], RawClient]) -> None:
    admin, ana = connected("ANONYMOUS"), connected("ana")
    create(admin, "seen", "hidden")
    group = READER._replace(resource_type=ResourceType.GROUP, resource_name="g")
    admin.ask(CREATE_ACLS, 3, {"creations": [creation(READER), creation(group)]})
    assert admin.ask(10, 3, {"key": "g", "key_type": 0}).error_code == 0
    member = {
        "group_id": "g",
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "member_epoch": 0,
        "rebalance_timeout": 1000,
        "subscribed_topic_names": [],
        "subscribed_topic_regex": ".*",
        "topic_partitions": [],
    }
    assert ana.ask(HEARTBEAT, 1, member).error_code == 0
    consumer_group: Any = secured.groups.by_id["g"]
    wait_until(lambda: ".*" in consumer_group.resolved_regexes)
    assert consumer_group.resolved_regexes[".*"].topics == {"seen"}


def test_entries_survive_a_restart(tmp_path: Path) -> None:
    config = BrokerConfig.of({"authorizer.class.name": STANDARD_AUTHORIZER})
    with Broker(str(tmp_path / "data"), config=config) as broker:
        broker.store.create_acls([READER, READER])
        broker.store.create_acls([READER])
    with Broker(str(tmp_path / "data"), config=config) as broker:
        assert list(broker.store.acls) == [READER]


def test_the_audit_log_has_changes_and_refusals(
    secured: Broker, connected: Callable[[str], RawClient], audit_file: Path
) -> None:
    admin, ana = connected("ANONYMOUS"), connected("ana")
    create(admin, "seen")
    admin.ask(CREATE_ACLS, 3, {"creations": [creation(READER)]})
    ana.ask(DELETE_TOPICS, 3, {"topic_names": ["seen"], "timeout": 9000})
    secured.stop()
    entries = list(reversed(read_last(audit_file, 10)))
    assert [(each["event"], each["principal"], each["api"], each["result"]) for each in entries] == [
        ("change", "User:ANONYMOUS", "CreateTopics", "NONE"),
        ("change", "User:ANONYMOUS", "CreateAcls", "NONE"),
        ("refusal", "User:ana", "DeleteTopics", "TOPIC_AUTHORIZATION_FAILED"),
    ]
    assert {each["listener"] for each in entries} == {"PLAINTEXT"}
    assert {each["client_id"] for each in entries} == {"test"}
    assert audit_file.stat().st_mode & 0o777 == 0o600


def test_a_topic_that_is_created_for_a_client_is_audited(
    connected: Callable[[str], RawClient], audit_file: Path
) -> None:
    connected("ANONYMOUS").ask(METADATA, 9, {"topics": [{"name": "wanted"}], "allow_auto_topic_creation": True})
    wait_until(lambda: bool(read_last(audit_file, 1)))
    (entry,) = read_last(audit_file, 10)
    assert (entry["api"], entry["principal"], entry["resource"]) == ("Metadata", "User:ANONYMOUS", "wanted")
    assert (entry["result"], entry["detail"], entry["listener"]) == ("NONE", "1 partitions", "PLAINTEXT")


def test_a_broker_does_not_start_without_its_audit_log(tmp_path: Path) -> None:
    config = BrokerConfig.of({"duralog.audit.log.file": str(tmp_path / "nowhere" / "audit.log")})
    with pytest.raises(StorageError, match="audit log"), Broker(str(tmp_path / "data"), config=config):
        pass


def test_thousands_of_filters_on_thousands_of_acls_are_answered(
    secured: Broker, connected: Callable[[str], RawClient], audit_file: Path
) -> None:
    """Each filter was compared with each entry: minutes for these."""
    admin = connected("ANONYMOUS")
    acls = [READER._replace(resource_name=f"topic-{number}") for number in range(10_000)]
    secured.store.create_acls(acls)
    misses = [
        {**ANYTHING, "resource_name_filter": f"other-{number}", "pattern_type_filter": 2} for number in range(2_997)
    ]
    hits = [{**ANYTHING, "resource_name_filter": name} for name in ("topic-7", "topic-9999", "topic-7")]
    results = admin.ask(DELETE_ACLS, 3, {"filters": [*misses, *hits]}).filter_results
    found = [[acl.resource_name for acl in result.matching_acls] for result in results]
    assert found == [[]] * 2_997 + [["topic-7"], ["topic-9999"], ["topic-7"]]
    assert len(secured.store.acls) == 9_998
    results = admin.ask(DELETE_ACLS, 3, {"filters": [ANYTHING] * 3_000}).filter_results
    assert {(result.error_code, len(result.matching_acls)) for result in results} == {(INVALID_REQUEST, 0)}
    assert "more than 100000 acls" in results[0].error_message
    assert len(secured.store.acls) == 9_998
    (everything,) = admin.ask(DELETE_ACLS, 3, {"filters": [ANYTHING]}).filter_results
    assert len(everything.matching_acls) == 9_998
    secured.stop()
    recorded = [entry for entry in read_last(audit_file, 99_999) if entry["event"] == "change"]
    assert len(recorded) == 10_000, "no change is missing, and none is there twice"


def request_of(name: str) -> Request:
    return Request(0, 0, 0, "test", None, memoryview(b""), principal=Principal(name))


def test_many_refused_keys_take_linear_time(connected: Callable[[str], RawClient]) -> None:
    """A list of them was searched for each: minutes for this many."""
    keys = [f"group-{number}" for number in range(60_000)]
    answer = connected("eve").ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [*keys, "group-0"]})
    assert [each.key for each in answer.coordinators] == [*keys, "group-0"]
    assert {each.error_code for each in answer.coordinators} == {30}


class TestDecisions:
    def test_the_cache_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("duralog.broker.authorization.authorizer._MOST_DECISIONS", 10)
        authorizer = Authorizer(lambda: [READER])
        for number in range(100):
            assert not authorizer.allows(request_of("ana"), Operation.READ, ResourceType.TOPIC, f"topic-{number}")
            assert len(authorizer._decisions) <= 10
        assert authorizer.allows(request_of("ana"), Operation.READ, ResourceType.TOPIC, "seen")

    def test_long_names_are_not_kept(self) -> None:
        entry = READER._replace(pattern_type=PatternType.PREFIXED, resource_name="x", operation=Operation.WRITE)
        authorizer = Authorizer(lambda: [entry])
        request = request_of("ana")
        assert authorizer.allows(request, Operation.WRITE, ResourceType.TOPIC, "x" * 250)
        authorizer.remember_writable(request, [b"x" * 250])
        assert authorizer._decisions == {}
        assert [*authorizer.writable.values()] == [set()]

    def test_names_of_a_client_without_entries_are_not_kept(self) -> None:
        authorizer = Authorizer(lambda: [READER, *(READER._replace(host="10.0.0.1", principal="User:eve"),)])
        for sender, operation in (("eve", Operation.READ), ("ana", Operation.WRITE)):
            assert not authorizer.allows(request_of(sender), operation, ResourceType.TOPIC, "seen")
            assert not authorizer.allows(request_of(sender), operation, ResourceType.GROUP, "seen")
        assert authorizer._decisions == {}
        assert authorizer.allows(request_of("ana"), Operation.DESCRIBE, ResourceType.TOPIC, "seen")

    def test_all_operations_at_once_are_those_that_are_allowed_one_by_one(self) -> None:
        dice = random.Random(5)
        names = ["a", "ab", "abc", "b", "*"]
        for number in range(300):
            entries = [
                Acl(
                    dice.choice((ResourceType.TOPIC, ResourceType.GROUP)),
                    dice.choice(names),
                    dice.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                    dice.choice(("User:ana", "User:bob", "User:*")),
                    dice.choice(("*", "127.0.0.1", "10.0.0.1")),
                    dice.choice(list(Operation)[2:]),
                    dice.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
                )
                for _ in range(dice.randrange(6))
            ]
            authorizer = Authorizer(partial(list, entries), ["User:root"], allow_if_no_acl=number % 2 == 0)
            for name, sender in product(names, ("ana", "eve", "root")):
                request = request_of(sender)
                for kind in (ResourceType.TOPIC, ResourceType.GROUP):
                    one_by_one = sum(
                        1 << each for each in OPERATIONS_OF[kind] if authorizer.shows(request, each, kind, name)
                    )
                    assert authorizer.allowed_operations(request, kind, name) == one_by_one, (name, sender, entries)

    def test_entries_that_come_later_count(self) -> None:
        entries: list[Acl] = []
        authorizer = Authorizer(lambda: entries)
        assert not authorizer.allows(request_of("ana"), Operation.READ, ResourceType.TOPIC, "seen")
        entries.append(READER)
        authorizer.refresh()
        assert authorizer.allows(request_of("ana"), Operation.READ, ResourceType.TOPIC, "seen")

    def test_refusals_are_reported_and_what_is_hidden_is_not(self) -> None:
        reported: list[tuple[int, int, str]] = []
        authorizer = Authorizer(lambda: [READER], on_refusal=lambda _, *what: reported.append(what))
        assert not authorizer.allows(request_of("eve"), Operation.READ, ResourceType.TOPIC, "seen")
        assert not authorizer.shows(request_of("eve"), Operation.DESCRIBE, ResourceType.TOPIC, "seen")
        assert reported == [(Operation.READ, ResourceType.TOPIC, "seen")]
