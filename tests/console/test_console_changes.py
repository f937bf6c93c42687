"""Changes from the console, of a directory and of a broker: what they do, what they refuse, and the command shown."""

from __future__ import annotations

import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import duralog
from duralog.client.acls import AclsDisabled
from duralog.command_line import app
from duralog.config.server_settings import STANDARD_AUTHORIZER
from duralog.console.changes.acls import AddAcl, RemoveAcl
from duralog.console.changes.change import Change
from duralog.console.changes.changer import ChangedPlace, Changer
from duralog.console.changes.configs import ResetBrokerConfig, SetBrokerConfig
from duralog.console.changes.groups import DeleteGroup, ResetGroup
from duralog.console.changes.records import ProduceRecord
from duralog.console.changes.topics import AlterTopic, CreateTopic, DeleteTopic
from duralog.console.facts.acls import AclFacts, AclsView
from duralog.console.source import Busy, ChangesNotAllowed
from duralog.errors import DuralogError, StoreLocked, UnknownTopic
from duralog.format.record import Record
from duralog.operations.groups.reset_offsets import ResetTo, Where
from duralog.operations.groups.stored_groups import groups_of_store
from duralog.storage.store import Store
from duralog.testing import TestBroker, running_broker
from tests.support.console import console_stores
from tests.support.console.console_stores import COMMITTED, ORDERS

AT_MS = 1_700_000_000_000
EARLIEST = ResetTo(where=Where.EARLIEST)
KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False, "offsets.topic.num.partitions": 1}


def produced(**changes: Any) -> ProduceRecord:
    parts = {"key": b"k", "value": b"v", "timestamp_ms": AT_MS, "headers": [], **changes}
    return ProduceRecord(topic="orders", partition=1, record=Record(**parts))


def acl(**changes: str) -> AclFacts:
    parts = {
        "permission": "allow",
        "principal": "User:ben",
        "operation": "read",
        "resource_type": "topic",
        "resource_name": "orders",
        "pattern": "literal",
        "host": "*",
    }
    return AclFacts(**{**parts, **changes})


STORED_ACL = acl(principal="User:ana", resource_type="group", resource_name="*")
CHANGES: dict[str, Change] = {
    "create": CreateTopic(topic="new", partitions=3, configs={"retention.ms": "1", "cleanup.policy": "compact,delete"}),
    "create-default": CreateTopic(topic="new.1", partitions=None, configs={}),
    "alter": AlterTopic(topic="orders", configs={"max.message.bytes": "2000", "retention.ms": None}),
    "partitions": AlterTopic(topic="orders", configs={}, partitions=5),
    "produce": produced(headers=[("h", b"1"), ("b", b"\xff"), ("0x", b"0x")]),
    "produce-by-key": ProduceRecord(topic="orders", partition=None, record=Record(key=b"u", value=b"", timestamp_ms=1)),
    "produce-strange": produced(key=b"-k 'q' \"$x\" `y`\n!", value=b"0xzz"),
    "produce-bytes": produced(key=b"\x00\xff", value=bytes(range(256))),
    "produce-tombstone": produced(value=None),
    "produce-nothing": produced(key=None, value=None),
    "produce-headers": produced(headers=[("h", b"1"), ("h", b"2"), ("none", None), ("a=b", b"c"), (" s", b"")]),
    "produce-long": produced(value=b"x" * 10_000),
    "set-config": SetBrokerConfig(name="log.retention.ms", value="5000"),
    "set-config-for-all": SetBrokerConfig(name="max.connections", value="77", for_all=True),
    "reset-config": ResetBrokerConfig(name="message.max.bytes"),
    "reset-all": ResetGroup(group="billing", topics=None, to=EARLIEST, option=("--to-earliest",)),
    "reset-some": ResetGroup(
        group="billing", topics={"orders": [0, 1]}, to=ResetTo(where=Where.OFFSET, value=7), option=("--to-offset", "7")
    ),
    "reset-shift": ResetGroup(
        group="billing", topics=None, to=ResetTo(where=Where.SHIFT, value=-5), option=("--shift-by", "-5")
    ),
    "reset-new-group": ResetGroup(
        group="it's new", topics={"orders": None}, to=ResetTo(where=Where.LATEST), option=("--to-latest",)
    ),
    "delete-group": DeleteGroup(group="billing"),
    "add-acl": AddAcl(entry=acl()),
    "add-acl-denied": AddAcl(
        entry=acl(permission="deny", host="10.0.0.7", operation="describe_configs", resource_name="it's -x")
    ),
    "add-acl-prefixed": AddAcl(entry=acl(resource_type="transactional_id", operation="write", pattern="prefixed")),
    "add-acl-cluster": AddAcl(entry=acl(resource_type="cluster", resource_name="kafka-cluster", operation="alter")),
    "remove-acl": RemoveAcl(entry=STORED_ACL),
    "remove-acl-host": RemoveAcl(entry=replace(STORED_ACL, host="10.0.0.8")),
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("changes") / "it's a shop"
    console_stores.make_shop(directory)
    of_directory(directory).carry_out(SetBrokerConfig(name="message.max.bytes", value="99999"), user=None)
    of_directory(directory).carry_out(CreateTopic(topic="with.dots", partitions=1, configs={}), user=None)
    for host in ("*", "10.0.0.8"):
        of_directory(directory).carry_out(AddAcl(entry=replace(STORED_ACL, host=host)), user=None)
    return directory


@pytest.fixture
def copied(shop: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(shop, tmp_path / f"it's {name}"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    folder = tmp_path_factory.mktemp("changed-broker")
    audit = {"duralog.audit.log.file": str(folder / "audit.log")}
    with running_broker({**KEEP, **audit}, data=str(folder / "data")) as running:
        yield running


def of_directory(directory: Path) -> Changer:
    return Changer(ChangedPlace(directory=str(directory)), is_allowed=True)


def of_broker(broker: TestBroker) -> Changer:
    return Changer(ChangedPlace(directory=None, broker=broker.bootstrap_servers), is_allowed=True)


def contents(directory: Path) -> Any:
    """Everything that a change may touch, but ids and the times of records that have none."""
    with Store(str(directory), read_only=True) as store:
        topics = {}
        for topic in store.topics():
            logs = {number: store.partition(topic, number) for number in store.partitions(topic)}
            records = {
                number: [(each.key, each.value, each.timestamp_ms, tuple(each.headers)) for each in log.read(0)]
                for number, log in logs.items()
            }
            shown = records if not topic.startswith("__") else sorted(records)
            topics[topic] = shown, store.topic_overrides(topic)
        configs = [store.configs_of(4, name) for name in ("", str(store.node_id))]
        return topics, configs, groups_of_store(store), set(store.acls)


def run_shown(command: str) -> None:
    """As a shell would: the words are split by its rules, and the parser is that of the command line."""
    given, bar, last = command.rpartition(" | duralog ")
    words = shlex.split(f"duralog {last}" if bar else command)
    assert words[0] == "duralog"
    said = None
    if bar:
        printf, pattern, said = shlex.split(given)
        assert (printf, pattern) == ("printf", "%s\\n")
    asked = ["--yes"] if {"delete", "remove"} & set(words[1:3]) else []
    result = CliRunner().invoke(app, [*words[1:], *asked], input=said)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", CHANGES)
def test_the_shown_command_does_the_same(name: str, copied: Callable[[str], Path]) -> None:
    by_page, by_command = copied("page"), copied("command")
    before = contents(by_page)
    change = CHANGES[name]
    preview = of_directory(by_page).preview(change)
    assert preview.has_effect
    assert contents(by_page) == before, "a preview changes nothing"
    of_directory(by_page).carry_out(change, user="ana")
    run_shown(of_directory(by_command).command(change))
    assert contents(by_page) == contents(by_command)
    assert contents(by_page) != before


def test_a_topic_is_deleted_only_while_it_is_the_one_that_was_seen(copied: Callable[[str], Path]) -> None:
    directory = copied("data")
    changer = of_directory(directory)
    delete = DeleteTopic(topic="orders", topic_id=changer.topic_id("orders"), about="2 partitions")
    assert "permanently: 2 partitions" in changer.preview(delete).sentence
    with duralog.open(directory) as store:
        store.delete_topic("orders")
    for attempt in (changer.preview, lambda change: changer.carry_out(change, user=None)):
        with pytest.raises(UnknownTopic):
            attempt(delete)
    with duralog.open(directory) as store:
        store.create_topic("orders", 1)
    with pytest.raises(DuralogError, match="created again meanwhile"):
        changer.carry_out(delete, user=None)
    again = DeleteTopic(topic="orders", topic_id=changer.topic_id("orders"), about="1 partition")
    run_shown(changer.command(again))
    with duralog.open(directory, read_only=True) as store:
        assert "orders" not in store.topics()


def test_a_dialog_that_was_open_while_the_topic_went(copied: Callable[[str], Path]) -> None:
    directory = copied("data")
    changer = of_directory(directory)
    with duralog.open(directory) as store:
        store.delete_topic("orders")
    for name in ("alter", "partitions", "produce"):
        with pytest.raises(UnknownTopic):
            changer.carry_out(CHANGES[name], user=None)
    assert not changer.preview(CHANGES["reset-all"]).has_effect


def test_a_directory_in_use_is_left_alone(copied: Callable[[str], Path]) -> None:
    directory = copied("data")
    changer = of_directory(directory)
    with duralog.open(directory):
        assert changer.preview(CHANGES["create"]).has_effect
        with pytest.raises((StoreLocked, Busy)):
            changer.carry_out(CHANGES["create"], user=None)
    why = changer.why_not("process 1 (java)")
    assert why is not None
    assert f"--data {shlex.quote(str(directory))}" in why
    assert changer.why_not(None) is None


def test_nothing_is_changed_without_leave(shop: Path) -> None:
    changer = Changer(ChangedPlace(directory=str(shop)))
    before = contents(shop)
    for change in CHANGES.values():
        assert changer.preview(change).has_effect
        assert "--allow-changes" in (changer.why_not(None) or "")
        with pytest.raises(ChangesNotAllowed, match="--allow-changes"):
            changer.carry_out(change, user=None)
    assert contents(shop) == before


def test_two_changes_at_once(copied: Callable[[str], Path]) -> None:
    refreshed: list[int] = []
    changer = Changer(ChangedPlace(directory=str(copied("data"))), is_allowed=True, after=lambda: refreshed.append(1))
    begun, go_on = threading.Event(), threading.Event()

    class Slow(CreateTopic):
        def carry_out(self, target: Any) -> str:
            begun.set()
            go_on.wait(30)
            return super().carry_out(target)

    first = threading.Thread(target=lambda: changer.carry_out(Slow(topic="slow", partitions=1, configs={}), user="ana"))
    first.start()
    assert begun.wait(30)
    with pytest.raises(Busy, match="another change is being made"):
        changer.carry_out(CHANGES["create"], user="ben")
    go_on.set()
    first.join(30)
    assert changer.carry_out(CHANGES["create"], user="ben") == "Created new with 3 partitions."
    assert refreshed == [1, 1]


BOTH_LAGS = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
REFUSED: dict[str, tuple[Change, str]] = {
    "create-existing": (CreateTopic(topic="orders", partitions=1, configs={}), "exists"),
    "create-colliding": (CreateTopic(topic="with_dots", partitions=1, configs={}), "collides"),
    "create-internal": (CreateTopic(topic="__cluster_metadata", partitions=1, configs={}), "internal"),
    "create-many": (CreateTopic(topic="x", partitions=20_000, configs={}), "partitions"),
    "create-unknown-config": (CreateTopic(topic="x", partitions=1, configs={"no.such": "1"}), "no.such"),
    "create-bad-config": (CreateTopic(topic="x", partitions=1, configs={"retention.ms": "soon"}), "retention.ms"),
    "create-contradiction": (CreateTopic(topic="x", partitions=1, configs=BOTH_LAGS), "8"),
    "alter-contradiction": (AlterTopic(topic="orders", configs=BOTH_LAGS), "8"),
    "alter-bad-config": (AlterTopic(topic="orders", configs={"retention.ms": "soon"}), "retention.ms"),
    "alter-unknown-config": (AlterTopic(topic="orders", configs={"no.such": "1"}), "no.such"),
    "alter-nothing": (AlterTopic(topic="nothing", configs={"retention.ms": "1"}), "nothing"),
    "fewer-partitions": (AlterTopic(topic="orders", configs={}, partitions=1), "partition"),
    "many-partitions": (AlterTopic(topic="orders", configs={}, partitions=20_000), "partitions"),
    "coordinator-partitions": (AlterTopic(topic="__consumer_offsets", configs={}, partitions=77), "__consumer_offsets"),
    "delete-nothing": (DeleteTopic(topic="nothing", topic_id=None, about=""), "topic"),
    "delete-created-again": (DeleteTopic(topic="orders", topic_id="another", about=""), "created again"),
    "produce-nothing": (ProduceRecord(topic="nothing", partition=0, record=Record(value=b"v")), "nothing"),
    "produce-internal": (
        ProduceRecord(topic="__consumer_offsets", partition=0, record=Record(key=b"k", value=b"v")),
        "__consumer_offsets is an internal topic",
    ),
    "produce-no-partition": (ProduceRecord(topic="orders", partition=99, record=Record(value=b"v")), "partition 99"),
    "produce-large": (
        ProduceRecord(topic="strict", partition=0, record=Record(key=b"k", value=b"v" * 2_000)),
        "max.message.bytes is 1000",
    ),
    "produce-without-key": (ProduceRecord(topic="strict", partition=0, record=Record(value=b"v")), "has no key"),
    "produce-old": (
        ProduceRecord(topic="strict", partition=0, record=Record(key=b"k", value=b"v", timestamp_ms=AT_MS)),
        "message.timestamp.before.max.ms allows",
    ),
    "config-unknown": (SetBrokerConfig(name="no.such", value="1"), "no.such"),
    "config-bad-value": (SetBrokerConfig(name="max.connections", value="lots"), "max.connections"),
    "config-zero": (SetBrokerConfig(name="max.connections", value="0"), "max.connections"),
    "config-at-start": (SetBrokerConfig(name="broker.id", value="7"), "broker.id"),
    "config-not-for-all": (
        SetBrokerConfig(name="principal.builder.class", value="x", for_all=True),
        "principal.builder.class",
    ),
    "reset-unknown": (ResetBrokerConfig(name="no.such"), "no.such"),
    "group-of-no-topic": (
        ResetGroup(group="billing", topics={"nothing": None}, to=EARLIEST, option=("--to-earliest",)),
        "nothing",
    ),
    "group-of-no-partition": (
        ResetGroup(group="billing", topics={"orders": [77]}, to=EARLIEST, option=("--to-earliest",)),
        "77",
    ),
    "delete-no-group": (DeleteGroup(group="nobody"), "group"),
}  # fmt: skip
STRICT = {"cleanup.policy": "compact", "max.message.bytes": "1000", "message.timestamp.before.max.ms": "1000"}


@pytest.fixture(scope="module")
def changers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Changer, Changer]]:
    """Of a directory and of a broker, with the same topics and a group."""
    directory = tmp_path_factory.mktemp("refused") / "data"
    with running_broker(KEEP, data=str(directory)) as running:
        made = of_broker(running)
        for topic, configs in (("orders", {}), ("with.dots", {}), ("strict", STRICT)):
            made.carry_out(CreateTopic(topic=topic, partitions=2, configs=configs), user=None)
        reset = ResetGroup(group="billing", topics={"orders": [0]}, to=EARLIEST, option=("--to-earliest",))
        made.carry_out(reset, user=None)
        copy = Path(shutil.copytree(directory, directory.parent / "copy"))
        yield of_directory(copy), made


@pytest.mark.parametrize("name", REFUSED)
def test_a_preview_refuses_what_the_change_would(name: str, changers: tuple[Changer, Changer]) -> None:
    change, sentence = REFUSED[name]
    for changer in changers:
        with pytest.raises(DuralogError, match=re.escape(sentence)):
            changer.preview(change)
        with pytest.raises(DuralogError, match=re.escape(sentence)):
            changer.carry_out(change, user=None)


def test_acls_are_listed_added_and_removed_through_a_broker(tmp_path: Path) -> None:
    secured = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with running_broker({**KEEP, **secured}, data=str(tmp_path / "data")) as running:
        changer = of_broker(running)
        assert changer.acls() == AclsView()
        add, remove = AddAcl(entry=STORED_ACL), RemoveAcl(entry=STORED_ACL)
        assert not changer.preview(remove).has_effect
        with pytest.raises(DuralogError, match="does not exist any more"):
            changer.carry_out(remove, user=None)
        assert changer.preview(add).has_effect
        assert "allow User:ana read on group" in changer.carry_out(add, user=None)
        assert not changer.preview(add).has_effect
        other = replace(STORED_ACL, resource_name="a", operation="all", permission="deny", pattern="prefixed")
        run_shown(changer.command(AddAcl(entry=other)))
        assert changer.acls() == AclsView(entries=(STORED_ACL, other))
        run_shown(changer.command(remove))
        assert changer.acls() == AclsView(entries=(other,))


def test_a_broker_without_an_authorizer_has_no_acls(changers: tuple[Changer, Changer]) -> None:
    of_directory, of_broker = changers
    assert of_broker.acls() == AclsView(is_disabled=True)
    assert of_directory.acls() == AclsView()
    for change in (AddAcl(entry=STORED_ACL), RemoveAcl(entry=STORED_ACL)):
        with pytest.raises(AclsDisabled, match="SECURITY_DISABLED"):
            of_broker.preview(change)


def test_acls_that_may_not_be_seen_are_not_taken_for_none(tmp_path: Path) -> None:
    secured = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    needs = pytest.raises(DuralogError, match="needs the operation describe on the cluster")
    with running_broker({**KEEP, **secured}, data=str(tmp_path / "data")) as running, needs:
        of_broker(running).acls()


def test_a_group_that_is_there_already(changers: tuple[Changer, Changer]) -> None:
    for number, changer in enumerate(changers):
        record = Record(key=b"k", value=b"v")
        changer.carry_out(ProduceRecord(topic="with.dots", partition=1, record=record), user=None)
        to_end = ResetGroup(
            group=f"g{number}", topics={"with.dots": [0]}, to=ResetTo(where=Where.LATEST), option=("--to-latest",)
        )
        assert changer.carry_out(to_end, user=None) == f"Reset 1 partition of group g{number}."
        assert not changer.preview(to_end).has_effect
        wider = replace(to_end, topics={"with.dots": None})
        assert changer.preview(wider).sentence == "1 partition of 2 would move."
        assert changer.carry_out(wider, user=None) == f"Reset 1 of 2 partitions of group g{number}."
        assert not changer.preview(wider).has_effect


def test_changes_through_a_broker(broker: TestBroker) -> None:
    """The broker holds the directory: it is the one that is asked."""
    directory = broker.store.path
    changer = Changer(ChangedPlace(directory=directory, broker=broker.bootstrap_servers), is_allowed=True)
    assert changer.why_not("process 1 (duralog)") is None
    create = CreateTopic(topic="payments", partitions=2, configs={"retention.ms": "-1"})
    changer.preview(create)
    assert "payments" not in broker.store.topics()
    assert changer.carry_out(create, user=None) == "Created payments with 2 partitions."
    record = Record(key=b"k", value=b"v", timestamp_ms=AT_MS, headers=[("h", None)])
    done = changer.carry_out(ProduceRecord(topic="payments", partition=1, record=record), user=None)
    assert done == "Produced to payments-1 at offset 0."
    (read,) = broker.store.partition("payments", 1).read(0)
    assert (read.key, read.value, read.timestamp_ms, list(read.headers)) == (b"k", b"v", AT_MS, [("h", None)])
    with pytest.raises(UnknownTopic):
        changer.carry_out(ProduceRecord(topic="paymnets", partition=None, record=record), user=None)
    assert "paymnets" not in broker.store.topics(), "a misspelled topic is not created"
    reset = ResetGroup(group="readers", topics={"payments": [1]}, to=EARLIEST, option=("--to-earliest",))
    assert changer.preview(reset).rows == (("payments-1", "–", "0", "no committed offset before"),)
    changer.carry_out(reset, user=None)
    end = ResetGroup(group="readers", topics=None, to=ResetTo(where=Where.LATEST), option=("--to-latest",))
    assert changer.preview(end).rows == (("payments-1", "0", "1", "+1"),)
    run_shown(changer.command(end))
    assert changer.preview(end).rows == (("payments-1", "1", "1", "stays"),)
    changer.carry_out(DeleteGroup(group="readers"), user=None)
    changer.carry_out(AlterTopic(topic="payments", configs={"retention.ms": None, "max.message.bytes": "9"}), user=None)
    configs = {entry.name: (entry.text, entry.in_force_from) for entry in changer.topic_configs("payments")}
    assert configs["max.message.bytes"] == ("9", 1)
    assert configs["retention.ms"][1] != 1
    changer.carry_out(AlterTopic(topic="payments", configs={}, partitions=4), user=None)
    assert broker.store.partition_count("payments") == 4
    changer.carry_out(SetBrokerConfig(name="max.connections", value="321"), user=None)
    assert {entry.name: entry.text for entry in changer.broker_configs()}["max.connections"] == "321"
    run_shown(changer.command(ResetBrokerConfig(name="max.connections")))
    assert not changer.preview(ResetBrokerConfig(name="max.connections")).has_effect
    delete = DeleteTopic(topic="payments", topic_id=changer.topic_id("payments"), about="4 partitions")
    changer.carry_out(delete, user=None)
    assert "payments" not in broker.store.topics()
    audited = (Path(directory).parent / "audit.log").read_text()
    for api in ("CreateTopics", "CreatePartitions", "IncrementalAlterConfigs", "DeleteTopics", "DeleteGroups"):
        assert f'"{api}"' in audited


def test_a_large_record_would_be_in_a_file(shop: Path) -> None:
    command = of_directory(shop).command(produced(value=b"x" * 100_000))
    assert command.endswith(" --topic orders --partition 1 --from-json --file record.json")


def test_the_command_logs_in_as_the_console_does() -> None:
    place = ChangedPlace(directory=None, broker="h:9092", config_file="my client.properties")
    assert Changer(place).command(CHANGES["delete-group"]) == (
        "duralog group delete h:9092 --config-file 'my client.properties' --group billing"
    )


def test_what_was_committed_is_shown_in_the_preview(shop: Path) -> None:
    preview = of_directory(shop).preview(CHANGES["reset-some"])
    assert preview.sentence == "2 partitions of 2 would move."
    assert preview.rows == (
        ("orders-0", str(COMMITTED), "7", f"{7 - COMMITTED:+,}"),
        ("orders-1", "–", "0", "no committed offset before; 7 is not in the partition, this is the nearest"),
    )
    assert ORDERS > COMMITTED
