"""What the pages show is what duralog's own commands say of the same directory."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from duralog.cli.voice.tables import size_text
from tests.console.conftest import Stores, Visit
from tests.support.console import told_by_duralog
from tests.support.console.console_stores import COMMITTED, MANY_PARTITIONS, MANY_SEGMENTS, ORDERS

ALL_KINDS = ("golden", "shop", "many", "damaged", "hostile")


def topics_told(stores: Stores, kind: str) -> dict[str, dict[str, Any]]:
    return {topic["topic"]: topic for topic in told_by_duralog.objects("topic", "list", str(stores[kind]))}


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_overview_adds_up(visit: Visit, stores: Stores, kind: str) -> None:
    told = topics_told(stores, kind).values()
    tab = visit(kind)
    assert tab.figure("total-records") == str(sum(topic["offsets"] for topic in told))
    assert tab.figure("total-size") == size_text(sum(topic["bytes"] for topic in told))
    assert tab.figure("total-topics") == str(sum(not topic["topic"].startswith("__") for topic in told))


def test_an_empty_directory_says_what_to_do(visit: Visit) -> None:
    tab = visit("empty")
    expect(tab.part("no-topics")).to_contain_text("duralog topic create")
    expect(tab.part("no-groups")).to_be_visible()
    assert tab.figure("total-topics") == "0"


@pytest.mark.parametrize("kind", ["golden", "shop"])
def test_every_topic_is_in_the_overview(visit: Visit, stores: Stores, kind: str) -> None:
    tab = visit(kind)
    tab.part("internal-topics").check()
    table = tab.table("topics")
    told = topics_told(stores, kind)
    expect(table.rows).to_have_count(len(told))
    assert table.column("name") == sorted(told)
    for name, topic in told.items():
        expect(table.cell(name, "partitions")).to_have_text(str(topic["partitions"]))
        expect(table.cell(name, "size")).to_have_text(size_text(topic["bytes"]))
    assert table.column("records") == [str(told[name]["offsets"]) for name in sorted(told)]


def test_a_thousand_partitions_are_sorted_searched_and_paged(visit: Visit, stores: Stores) -> None:
    tab = visit("many")
    names = sorted(name for name in topics_told(stores, "many") if not name.startswith("__"))
    table = tab.table("topics")
    first = table.column("name")
    assert first == names[: len(first)]
    assert 10 <= len(first) <= 50
    table.next_page()
    expect(table.rows.first).to_contain_text(names[len(first)])
    assert table.column("name") == names[len(first) : 2 * len(first)]
    table.sort_by("partitions")
    expect(table.rows.first).to_contain_text("orders")
    table.search("service-04")
    expect(table.rows).to_have_count(10)
    table.search("no such topic")
    expect(table.rows).to_have_count(0)


def test_a_topic_of_many_partitions(visit: Visit, stores: Stores) -> None:
    told = topics_told(stores, "many")["orders"]
    tab = visit("many", "/topic/orders")
    assert tab.figure("total-partitions") == str(MANY_PARTITIONS - MANY_PARTITIONS // 10) == str(told["partitions"])
    assert tab.figure("total-records") == str(told["offsets"])
    table = tab.table("partitions")
    table.sort_by("partition")
    expect(table.rows.first).to_contain_text(str(told["partitions"] - 1))
    expect(table.cell(str(told["partitions"] - 1), "segments")).to_have_text(str(MANY_SEGMENTS))


@pytest.mark.parametrize(("kind", "topic"), [("golden", "trimmed"), ("golden", "txn"), ("shop", "orders")])
def test_the_partitions_of_a_topic(visit: Visit, stores: Stores, kind: str, topic: str) -> None:
    told = told_by_duralog.objects("topic", "describe", str(stores[kind]), "--topic", topic)
    partitions = [one for one in told if one["kind"] == "partition"]
    table = visit(kind, f"/topic/{topic}").table("partitions")
    expect(table.rows).to_have_count(len(partitions))
    for one in partitions:
        key = str(one["partition"])
        assert [table.cell(key, name).inner_text().replace(",", "") for name in ("start", "end", "segments")] == [
            str(one["start_offset"]),
            str(one["end_offset"]),
            str(one["segments"]),
        ]
        expect(table.cell(key, "size")).to_have_text(size_text(one["bytes"]))


def test_the_lag_of_groups(visit: Visit, stores: Stores) -> None:
    (told,) = told_by_duralog.objects("group", "list", str(stores["shop"]))
    assert told["lag"] == ORDERS - COMMITTED
    tab = visit("shop", "/groups")
    expect(tab.table("groups").cell("billing", "lag")).to_have_text(str(told["lag"]))
    tab.table("groups").cell("billing", "name").get_by_role("link").click()
    expect(tab.part("title")).to_contain_text("billing")
    offsets = tab.table("group-offsets")
    expect(offsets.rows).to_have_count(2)
    expect(offsets.cell("orders-1", "committed")).to_have_text("no commit")
    expect(offsets.rows.first).to_contain_text(str(COMMITTED))
    expect(offsets.rows.first).to_contain_text(str(ORDERS - COMMITTED))


def test_the_groups_that_kafka_wrote(visit: Visit, stores: Stores) -> None:
    told = {group["group"]: group for group in told_by_duralog.objects("group", "list", str(stores["golden"]))}
    table = visit("golden", "/groups").table("groups")
    expect(table.rows).to_have_count(len(told))
    assert table.column("name") == sorted(told)
