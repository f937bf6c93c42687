"""Changes in the browser: on a directory and on a broker, in another zone, by two."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import duralog
from bench.workers.console_process import RunningConsole
from duralog.console.changes.changer import ChangedPlace, Changer
from duralog.console.changes.topics import CreateTopic
from duralog.testing import TestBroker, running_broker
from tests.console.conftest import Stores, Visit, complaints
from tests.support.console.console_stores import COMMITTED, FIRST_MS, MINUTE_MS
from tests.support.console.watched_page import WatchedPage

GIB = 1 << 30


@pytest.fixture(scope="module")
def directory(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.copied("shop", tmp_path_factory.mktemp("workbench") / "data")


@pytest.fixture(scope="module")
def bench(directory: Path) -> Iterator[RunningConsole]:
    with RunningConsole(str(directory), allow_changes=True) as console:
        yield console
        assert complaints(console) == []


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with running_broker({"offsets.topic.num.partitions": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def on_broker(broker: TestBroker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers, allow_changes=True) as console:
        yield console
        assert complaints(console) == []


def fill(tab: WatchedPage, opener: str, **values: str) -> None:
    tab.part(opener).click()
    for name, value in values.items():
        field = tab.part(f"change-{name}")
        is_choice = field.evaluate("element => element.tagName") == "SELECT"
        field.select_option(value) if is_choice else field.fill(value)


def plan(tab: WatchedPage) -> str:
    """Goes to the second step. Returns the command."""
    tab.part("change-next").click()
    expect(tab.part("change-command")).to_be_visible()
    return tab.part("change-command").inner_text()


def carry_out(tab: WatchedPage, sentence: str) -> None:
    tab.part("change-confirm").click()
    expect(tab.part("change-sentence")).to_have_text(sentence)
    tab.part("change-done").click()
    expect(tab.part("change-dialog")).to_have_count(0)


def test_names_and_records_that_are_strange(visit: Visit, bench: RunningConsole) -> None:
    tab = visit(bench, "/")
    fill(tab, "create-topic", topic="pay ments", partitions="2", configs="cleanup.policy=compact")
    tab.part("change-next").click()
    expect(tab.part("change-problem")).to_contain_text("ASCII letters")
    tab.part("change-topic").fill("payments")
    assert "--config cleanup.policy=compact" in plan(tab)
    tab.fits_its_window()
    carry_out(tab, "Created payments with 2 partitions.")
    expect(tab.table("topics").cell("payments", "policy")).to_have_text("compact")

    tab.open("/topic/payments")
    fill(tab, "produce", partition="1", key_form="text", key="-k", value='<b onclick="x">')
    assert shlex.split(plan(tab))[-4:] == ["--key", "-k", "--value", '<b onclick="x">']
    carry_out(tab, "Produced to payments-1 at offset 0.")
    expect(tab.table("partitions").cell("1", "end")).to_have_text("1")
    tab.open("/topic/payments/1/records?open=0")
    fill(tab, "resend", partition="0")
    plan(tab)
    carry_out(tab, "Produced to payments-0 at offset 0.")

    tab.open("/topic/payments")
    fill(tab, "delete-topic", name="payment")
    tab.part("change-next").click()
    expect(tab.part("change-problem")).to_contain_text("Type payments")
    tab.part("change-name").fill("payments")
    plan(tab)
    tab.part("change-confirm").click()
    expect(tab.part("change-sentence")).to_have_text("Deleted payments.")
    tab.part("change-done").click()
    expect(tab.part("page-overview")).to_be_visible()
    expect(tab.table("topics").cell("payments", "name")).to_have_count(0)


def test_a_group_goes_to_a_time_of_the_readers_zone(visit: Visit, bench: RunningConsole, directory: Path) -> None:
    """Tokyo is nine hours ahead of the server: 2023-11-15 07:23:20 there is ten minutes after the first record."""
    tab = visit(bench, "/groups/billing", timezone_id="Asia/Tokyo")
    tab.open("/groups/billing")
    expect(tab.part("zone")).to_contain_text("Asia/Tokyo")
    fill(tab, "reset-group", to="to-datetime", time="2023-11-15 07:23:20")
    assert "--to-datetime 2023-11-14T22:23:20.000Z --execute" in plan(tab)
    assert FIRST_MS + 10 * MINUTE_MS == 1_700_000_600_000
    rows = tab.part("change-rows").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(f"orders-0{COMMITTED}10")
    tab.part("change-back").click()
    tab.part("change-to").select_option("shift-by")
    tab.part("change-shift").fill("-20")
    plan(tab)
    carry_out(tab, "Reset 1 partition of group billing.")
    expect(tab.table("group-offsets").cell("orders-0", "committed")).to_have_text(str(COMMITTED - 20))
    expect(tab.table("group-offsets").cell("orders-1", "committed")).to_have_text("no commit")


def test_two_readers_and_a_topic_that_goes(visit: Visit, bench: RunningConsole, directory: Path) -> None:
    changer = Changer(ChangedPlace(directory=str(directory)), is_allowed=True)
    changer.carry_out(CreateTopic(topic="fleeting", partitions=1, configs={}), user=None)
    visit(bench, "/").table("topics").cell("fleeting", "name").wait_for()
    tabs = [visit(bench, "/topic/fleeting") for _ in range(2)]
    for tab in tabs:
        fill(tab, "delete-topic", name="fleeting")
        plan(tab)
    tabs[0].part("change-confirm").click()
    expect(tabs[0].part("change-sentence")).to_have_text("Deleted fleeting.")
    tabs[1].part("change-confirm").click()
    expect(tabs[1].part("change-problem")).to_contain_text("fleeting")
    tabs[1].part("change-close").click()
    expect(tabs[1].part("change-dialog")).to_have_count(0)
    tabs[1].part("produce").click()
    expect(tabs[1].part("change-dialog")).to_be_visible()
    tabs[1].part("change-next").click()
    expect(tabs[1].part("change-problem")).to_contain_text("fleeting")


def test_a_broker(visit: Visit, on_broker: RunningConsole, broker: TestBroker) -> None:
    """Its topics, records, groups and configs are changed through it."""
    tab = visit(on_broker, "/")
    fill(tab, "create-topic", topic="orders", partitions="1")
    plan(tab)
    carry_out(tab, "Created orders with 1 partition.")
    tab.open("/topic/orders")
    fill(tab, "produce", value="first")
    plan(tab)
    carry_out(tab, "Produced to orders-0 at offset 0.")
    assert [record.value for record in broker.store.partition("orders", 0).read(0)] == [b"first"]
    tab.open("/configs")
    tab.part("broker-configs-search").fill("max.connections")
    tab.page.get_by_role("button", name="Edit max.connections", exact=True).click()
    tab.part("change-value").fill("99")
    assert plan(tab) == f"duralog config set {broker.bootstrap_servers} max.connections=99"
    carry_out(tab, "Set max.connections.")
    expect(tab.table("broker-configs").cell("max.connections", "source")).to_have_text("this broker, dynamic")
    assert broker.store.config.text("max.connections") == "99"


def test_without_leave_there_is_the_command(visit: Visit, stores: Stores) -> None:
    tab = visit("shop", "/topic/orders")
    fill(tab, "add-partitions", partitions="9")
    assert plan(tab) == shlex.join(
        ["duralog", "topic", "alter", str(stores["shop"]), "--topic", "orders", "--partitions", "9"]
    )
    expect(tab.part("change-refused")).to_contain_text("--allow-changes")
    expect(tab.part("change-confirm")).to_have_count(0)
    with duralog.open(stores["shop"], read_only=True) as store:
        assert len(store.partitions("orders")) == 2


@pytest.mark.usefixtures("toolkit")
def test_an_axis_has_no_label_twice(visit: Visit) -> None:
    from duralog.console.ui.charts import size_axis, size_label

    page = visit("shop", "/").page
    for low, high in ((0, 1), (0, 3000), (100 * GIB, 100 * GIB + 5), (100 * GIB, 100.2 * GIB), (3.9 * GIB, 4.1 * GIB)):
        axis = size_axis(low, high)
        places = [
            axis["min"] + step * axis["interval"]
            for step in range(4)
            if axis["min"] + step * axis["interval"] <= axis["max"]
        ]
        labels = [page.evaluate(size_label(axis["interval"]), place) for place in places]
        assert len(set(labels)) == len(places) > 1, labels
        forms = {(unit, len(number.partition(".")[2])) for number, unit in map(str.split, labels)}
        assert len(forms) == len({unit for unit, _ in forms}), labels
