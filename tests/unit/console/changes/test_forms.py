"""What readers type into dialogs: changes, or a sentence for the field that is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duralog.broker.security.web_users import Role
from duralog.console.changes.acl_forms import add_acl_form, can_be_named, remove_acl_form
from duralog.console.changes.acls import AddAcl, RemoveAcl
from duralog.console.changes.change import Change, WrongInput
from duralog.console.changes.configs import ResetBrokerConfig, SetBrokerConfig
from duralog.console.changes.forms import LONGEST_LINE, LONGEST_TEXT, Form
from duralog.console.changes.group_forms import delete_group_form, reset_group_form
from duralog.console.changes.groups import DeleteGroup, ResetGroup
from duralog.console.changes.record_forms import is_whole, produce_form, resend_form
from duralog.console.changes.records import ProduceRecord
from duralog.console.changes.topic_forms import (
    add_partitions_form,
    broker_config_form,
    create_topic_form,
    delete_topic_form,
    topic_config_form,
)
from duralog.console.changes.topics import AlterTopic, CreateTopic, DeleteTopic
from duralog.console.drawing.reader_zone import zone_of
from duralog.console.facts.acls import AclFacts
from duralog.console.facts.records import SHOWN_BYTES, ShownRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record
from duralog.operations.groups.reset_offsets import ResetTo, Where

NOW_MS = 1_700_000_000_000
BERLIN = zone_of("Europe/Berlin")


def parse_when(typed: str) -> int:
    return BERLIN.parse(typed, now_ms=NOW_MS)


def reset_form(*, is_directory: bool = True) -> Form:
    return reset_group_form(
        "billing",
        {"orders": [0, 1, 2, 5], "new": [0], "__consumer_offsets": [0]},
        committed=["orders"],
        is_directory=is_directory,
        parse_when=parse_when,
        now_ms=lambda: NOW_MS,
    )


def typed(form: Form, **values: Any) -> Change:
    """As the browser sends it: all fields, also those that are hidden."""
    return form.change({**{field.name: field.value for field in form.fields}, **values})


def wrong(form: Form, **values: Any) -> tuple[str, str]:
    with pytest.raises(WrongInput) as raised:
        typed(form, **values)
    return raised.value.field, str(raised.value)


def test_a_new_topic() -> None:
    form = create_topic_form()
    configs = " retention.ms = 5 \n\ncleanup.policy=compact,delete\n"
    change = typed(form, topic=" orders ", partitions="1,000", configs=configs)
    assert change == CreateTopic(
        topic="orders", partitions=1000, configs={"retention.ms": "5", "cleanup.policy": "compact,delete"}
    )
    assert typed(form, topic="a") == CreateTopic(topic="a", partitions=None, configs={})


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": ".."}, "topic"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "x" * 250}, "topic"),
        ({"topic": "x" * (LONGEST_LINE + 1)}, "topic"),
        ({"topic": "a\ud800"}, "topic"),
        ({"topic": 5}, "topic"),
        ({"topic": ["a"]}, "topic"),
        ({"topic": None}, "topic"),
        ({"partitions": "0"}, "partitions"),
        ({"partitions": "-1"}, "partitions"),
        ({"partitions": "2147483648"}, "partitions"),
        ({"partitions": "9" * 400}, "partitions"),
        ({"partitions": "1e3"}, "partitions"),
        ({"partitions": "٣"}, "partitions"),
        ({"configs": "retention.ms"}, "configs"),
        ({"configs": "=5"}, "configs"),
        ({"configs": "a=1\na=2"}, "configs"),
        ({"configs": "x" * (LONGEST_TEXT + 1)}, "configs"),
        ({"configs": "".join(f"a{number}=1\n" for number in range(300))}, "configs"),
    ],
)
def test_what_cannot_be_a_topic(values: dict[str, Any], field: str) -> None:
    found, sentence = wrong(create_topic_form(), **{"topic": "orders", **values})
    assert found == field
    assert len(sentence) < 500


@pytest.mark.parametrize("given", [None, [], "topic", 5, [["topic", "a"]]])
def test_a_message_that_is_no_form(given: object) -> None:
    with pytest.raises(WrongInput):
        create_topic_form().change(given)


def test_more_partitions() -> None:
    form = add_partitions_form("orders", 3)
    assert typed(form) == AlterTopic(topic="orders", configs={}, partitions=4)
    assert wrong(form, partitions="3")[0] == "partitions"
    assert wrong(form, partitions="")[0] == "partitions"


def test_a_topic_is_deleted_by_typing_its_name() -> None:
    form = delete_topic_form("orders", "id", "3 partitions")
    assert typed(form, name="orders") == DeleteTopic(topic="orders", topic_id="id", about="3 partitions")
    for name in ("", "Orders", "orders ", "order"):
        assert wrong(form, name=name)[0] == "name"


def test_configs() -> None:
    form = topic_config_form("orders", "retention.ms", "5", "", is_set=True)
    assert typed(form, value=" 7 ") == AlterTopic(topic="orders", configs={"retention.ms": "7"})
    assert typed(form, what="reset") == AlterTopic(topic="orders", configs={"retention.ms": None})
    assert wrong(topic_config_form("orders", "retention.ms", "5", "", is_set=False), what="reset")[0] == "what"
    form = broker_config_form("max.connections", "5", "", is_set=True)
    assert typed(form, value="9") == SetBrokerConfig(name="max.connections", value="9")
    assert typed(form, value="9", for_all="on") == SetBrokerConfig(name="max.connections", value="9", for_all=True)
    assert typed(form, what="reset") == ResetBrokerConfig(name="max.connections")


@pytest.mark.parametrize(
    ("values", "to", "option"),
    [
        ({}, ResetTo(where=Where.EARLIEST), ("--to-earliest",)),
        ({"to": "to-latest"}, ResetTo(where=Where.LATEST), ("--to-latest",)),
        ({"to": "to-offset", "offset": "1,234"}, ResetTo(where=Where.OFFSET, value=1234), ("--to-offset", "1234")),
        ({"to": "shift-by", "shift": "-5"}, ResetTo(where=Where.SHIFT, value=-5), ("--shift-by", "-5")),
        (
            {"to": "by-duration", "duration": "PT1H"},
            ResetTo(where=Where.TIME, value=NOW_MS - 3_600_000),
            ("--by-duration", "PT1H"),
        ),
        (
            # In the zone of the reader, which is not that of the server; the command has it in UTC.
            {"to": "to-datetime", "time": "2023-11-14 12:00"},
            ResetTo(where=Where.TIME, value=1_699_959_600_000),
            ("--to-datetime", "2023-11-14T11:00:00.000Z"),
        ),
    ],
)
def test_where_a_group_goes(values: dict[str, str], to: ResetTo, option: tuple[str, ...]) -> None:
    assert typed(reset_form(), **values) == ResetGroup(group="billing", topics=None, to=to, option=option)


def test_which_partitions_of_a_group() -> None:
    change = typed(reset_form(), topic="orders", partitions="0, 1-2,5", evict="on")
    assert isinstance(change, ResetGroup)
    assert (change.topics, change.evicts) == ({"orders": [0, 1, 2, 5]}, True)
    change = typed(reset_form(is_directory=False), topic="new", evict="on")
    assert isinstance(change, ResetGroup)
    assert (change.topics, change.evicts) == ({"new": None}, False)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"topic": "__consumer_offsets"}, "topic"),
        ({"topic": "nothing"}, "topic"),
        ({"to": "from-file"}, "to"),
        ({"topic": "orders", "partitions": "3"}, "partitions"),
        ({"topic": "orders", "partitions": "0-999999999"}, "partitions"),
        ({"topic": "orders", "partitions": "x"}, "partitions"),
        ({"topic": "orders", "partitions": "-1"}, "partitions"),
        ({"to": "to-offset"}, "offset"),
        ({"to": "to-offset", "offset": "-1"}, "offset"),
        ({"to": "shift-by"}, "shift"),
        ({"to": "by-duration", "duration": "soon"}, "duration"),
        ({"to": "to-datetime", "time": "tomorrow"}, "time"),
        ({"to": "to-datetime", "time": "9" * 3000}, "time"),
    ],
)
def test_where_no_group_can_go(values: dict[str, str], field: str) -> None:
    assert wrong(reset_form(), **values)[0] == field


def test_a_group_is_deleted() -> None:
    assert typed(delete_group_form("billing", is_directory=False)) == DeleteGroup(group="billing")
    assert typed(delete_group_form("billing", is_directory=True), evict="on") == DeleteGroup(
        group="billing", evicts=True
    )


def new_record(**values: str) -> Record:
    change = typed(produce_form("orders", ["orders"], parse_when=parse_when), **values)
    assert isinstance(change, ProduceRecord)
    return change.record


def test_a_record() -> None:
    assert new_record() == Record(key=None, value=b"", timestamp_ms=NO_TIMESTAMP, headers=[])
    record = new_record(
        key_form="text",
        key="ключ",
        value_form="json",
        value='{"a": [1]}',
        headers_form="text",
        headers="a=1\nb=0xff\nnone\n a = x=y",
        time="2023-11-14 12:00",
    )
    assert record == Record(
        key="ключ".encode(),
        value=b'{"a": [1]}',
        timestamp_ms=1_699_959_600_000,
        headers=[("a", b"1"), ("b", b"\xff"), ("none", None), ("a", b" x=y")],
    )
    assert new_record(value_form="none", key_form="base64", key="AP8=\n").key == b"\x00\xff"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"topic": "__consumer_offsets"}, "topic"),
        ({"topic": "a/b"}, "topic"),
        ({"partition": "-1"}, "partition"),
        ({"partition": "x"}, "partition"),
        ({"key_form": "same"}, "key_form"),
        ({"value_form": "json", "value": "{"}, "value"),
        ({"value_form": "json", "value": "[" * 100_000}, "value"),
        ({"value_form": "base64", "value": "a"}, "value"),
        ({"headers_form": "text", "headers": "=x"}, "headers"),
        ({"headers_form": "text", "headers": "a=0xf"}, "headers"),
        ({"headers_form": "text", "headers": "a\n" * 2_000}, "headers"),
        ({"time": "never"}, "time"),
        ({"time": "1960-01-01"}, "time"),
    ],
)
def test_what_cannot_be_a_record(values: dict[str, str], field: str) -> None:
    assert wrong(produce_form("orders", [], parse_when=parse_when), **values)[0] == field


SHOWN = ShownRecord(
    offset=7,
    timestamp_ms=NOW_MS,
    timestamp_type="CreateTime",
    key=b"k",
    value=b"v",
    headers=(),
    key_bytes=1,
    value_bytes=1,
    header_count=0,
    size_bytes=2,
    is_tombstone=False,
    codec=None,
)


@pytest.mark.parametrize("data", [None, b"", b"text", b"two\r\nlines", b"\x00\xff", b"x" * 1_000_000, b"0xff"])
@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("a", b"1"),),
        (("a", None), ("a", b"")),
        (("a=b", b""),),
        (("h", b"\xff"),),
        (("h", b"0x"),),
        ((" ", b"x"),),
    ],
    ids=str,
)
def test_a_record_that_is_sent_again_keeps_its_bytes(data: bytes | None, headers: Any) -> None:
    shown = replace(SHOWN, key=data, value=data, headers=headers)
    form = resend_form("orders", ["orders"], shown, parse_when=parse_when)
    assert sum(len(field.value) for field in form.fields) < 600_000, "a page's message is bounded"
    change = typed(form)
    assert isinstance(change, ProduceRecord)
    assert (change.record.key, change.record.value, tuple(change.record.headers)) == (data, data, headers)
    change = typed(form, key_form="text", key="new", headers_form="none")
    assert isinstance(change, ProduceRecord)
    assert (change.record.key, change.record.value, tuple(change.record.headers)) == (b"new", data, ())


def test_a_key_that_a_line_cannot_show_is_not_typed() -> None:
    form = resend_form("orders", ["orders"], replace(SHOWN, key=b"a\nb", offset=12_345), parse_when=parse_when)
    assert form.title == "Send offset 12,345 again"
    assert {field.name: field.value for field in form.fields}["key_form"] == "same"


def test_only_a_whole_record_can_be_sent_again() -> None:
    assert is_whole(SHOWN)
    assert is_whole(replace(SHOWN, headers=(("h", b"x" * SHOWN_BYTES),), header_count=1))
    assert not is_whole(replace(SHOWN, value_bytes=2))
    assert not is_whole(replace(SHOWN, header_count=1))


READER = AclFacts(
    permission="allow",
    principal="User:ana",
    operation="read",
    resource_type="topic",
    resource_name="orders",
    pattern="literal",
    host="*",
)


def test_an_acl() -> None:
    form = add_acl_form()
    assert typed(form, principal=" User:ana ", name="orders") == AddAcl(entry=READER)
    assert typed(form, principal="User:ana", name="orders", host="") == AddAcl(entry=READER)
    of_cluster = replace(READER, resource_type="cluster", resource_name="kafka-cluster", operation="alter")
    hidden = {"name": "ignored", "pattern": "prefixed"}
    assert typed(form, principal="User:ana", resource_type="cluster", operation="alter", **hidden) == AddAcl(
        entry=of_cluster
    )
    for field, values in (
        ("principal", {"principal": "ana", "name": "orders"}),
        ("principal", {"principal": "User:", "name": "orders"}),
        ("principal", {"principal": "User:a\nb", "name": "orders"}),
        ("name", {"principal": "User:ana", "name": " "}),
        ("host", {"principal": "User:ana", "name": "orders", "host": "a\x00"}),
        ("operation", {"principal": "User:ana", "name": "g", "resource_type": "group", "operation": "write"}),
        ("operation", {"principal": "User:ana", "name": "orders", "operation": "fly"}),
        ("permission", {"principal": "User:ana", "name": "orders", "permission": "any"}),
        ("resource_type", {"principal": "User:ana", "name": "orders", "resource_type": "user"}),
    ):
        assert wrong(form, **values)[0] == field


def test_acls_are_for_administrators() -> None:
    removal = typed(remove_acl_form(READER))
    assert removal == RemoveAcl(entry=READER)
    assert removal.role is AddAcl(entry=READER).role is Role.ADMINISTER
    assert not can_be_named(replace(READER, resource_type="user"))
