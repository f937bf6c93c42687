"""Every part of the console on a screen and on a phone, light and dark, for a reader nine hours ahead of the server.

The screens share the consoles and the directory, and each has its own topics, groups and configs in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

import duralog
from bench.workers.console_process import RunningConsole
from duralog.console.changes.changer import ChangedPlace, Changer
from duralog.console.changes.groups import ResetGroup
from duralog.operations.groups.reset_offsets import ResetTo, Where
from tests.console.conftest import Stores, complaints
from tests.console.test_console_reach import CONTRASTS, is_dark
from tests.console.test_console_workbench import carry_out, fill, plan
from tests.support.console.console_stores import EVENT_PARTITIONS, FIRST_MS, KEEP_EVERYTHING, ORDERS
from tests.support.console.watched_page import WatchedPage

ZONE = ZoneInfo("Asia/Tokyo")
MANY = 1_200_000
NEVER = "$.name matches 'nothing$'"
"""Each document is parsed for it: a search of `many` takes seconds."""


class Screen(NamedTuple):
    width: int
    colours: Literal["light", "dark"]

    @property
    def is_phone(self) -> bool:
        return self.width < 700


SCREENS = [Screen(1440, "light"), Screen(1440, "dark"), Screen(390, "light"), Screen(390, "dark")]
NAMES = ("max.connections", "background.threads", "log.segment.delete.delay.ms", "log.cleaner.backoff.ms")
CONFIGS = dict(zip(SCREENS, NAMES, strict=True))
"""Broker configs that can be changed: one for each screen."""


@pytest.fixture(scope="module")
def place(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop, a group for each screen, and a topic that takes a while to be searched."""
    directory = stores.copied("shop", tmp_path_factory.mktemp("screens") / "data")
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.create_topic("many", 1)
        for first in range(0, MANY, MANY // 8):
            names = pa.array(np.arange(first, first + MANY // 8)).cast(pa.string())
            values = pc.binary_join_element_wise('{"name":"', names, '"}', "").cast(pa.binary())
            store.partition("many", 0).append_arrow(pa.table({"value": values}), codec="zstd")
    changer = Changer(ChangedPlace(directory=str(directory)), is_allowed=True)
    for screen in SCREENS:
        to = ResetTo(where=Where.LATEST)
        changer.carry_out(
            ResetGroup(group=group_of(screen), topics={"orders": None}, to=to, option=("--to-latest",)), user=None
        )
    return directory


@pytest.fixture(scope="module")
def workbench(place: Path) -> Iterator[RunningConsole]:
    with RunningConsole(str(place), allow_changes=True) as console:
        yield console
        assert complaints(console) == []


@pytest.fixture(scope="module", params=SCREENS, ids=lambda screen: f"{screen.width}-{screen.colours}")
def screen(request: pytest.FixtureRequest) -> Screen:
    return Screen(*request.param)


@pytest.fixture(scope="module")
def context(browser: Browser, screen: Screen) -> Iterator[BrowserContext]:
    """Of a browser that was here before: its cookie has its zone."""
    made = browser.new_context(
        viewport={"width": screen.width, "height": 844}, color_scheme=screen.colours, timezone_id=ZONE.key
    )
    made.add_cookies([{"name": "duralog-zone", "value": ZONE.key, "domain": "127.0.0.1", "path": "/"}])
    yield made
    made.close()


OpenTab = Callable[[RunningConsole, str], WatchedPage]


@pytest.fixture
def open_tab(context: BrowserContext) -> Iterator[OpenTab]:
    tabs: list[WatchedPage] = []

    def open_tab(console: RunningConsole, path: str) -> WatchedPage:
        tabs.append(WatchedPage(context, console.address))
        return tabs[-1].open(path)

    yield open_tab
    faults = [fault for tab in tabs for fault in tab.faults]
    for tab in tabs:
        tab.page.close()
    assert faults == []


def group_of(screen: Screen) -> str:
    return f"readers-{screen.width}-{screen.colours}"


def typed(timestamp_ms: int) -> str:
    """A time as the reader types it."""
    return (datetime.fromtimestamp(0, ZONE) + timedelta(milliseconds=timestamp_ms)).strftime("%Y-%m-%d %H:%M:%S")


def looks_right(tab: WatchedPage, screen: Screen) -> None:
    tab.fits_its_window()
    for dialog in tab.part("change-dialog").all():
        assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")
    assert tab.page.evaluate(CONTRASTS) == []
    assert is_dark(tab) == (screen.colours == "dark")
    expect(tab.part("zone")).to_contain_text(ZONE.key)


def test_a_topic_from_its_first_to_its_last_day(open_tab: OpenTab, workbench: RunningConsole, screen: Screen) -> None:
    topic = f"payments-{screen.width}-{screen.colours}"
    tab = open_tab(workbench, "/")
    looks_right(tab, screen)
    fill(tab, "create-topic", topic=topic, partitions="2", configs="cleanup.policy=compact")
    looks_right(tab, screen)
    assert "--config cleanup.policy=compact" in plan(tab)
    looks_right(tab, screen)
    carry_out(tab, f"Created {topic} with 2 partitions.")
    expect(tab.table("topics").cell(topic, "name")).to_be_visible()

    tab.open(f"/topic/{topic}")
    fill(tab, "produce", partition="1", key_form="text", key="k", value='{"a": 1}', time="2026-01-31 12:00")
    looks_right(tab, screen)
    assert shlex.split(plan(tab))[-2:] == ["--time", "2026-01-31T03:00:00.000Z"]
    looks_right(tab, screen)
    carry_out(tab, f"Produced to {topic}-1 at offset 0.")
    tab.open(f"/topic/{topic}/1/records?open=0")
    expect(tab.part("record-details")).to_contain_text("2026-01-31 12:00:00.000")
    looks_right(tab, screen)
    fill(tab, "resend", partition="0")
    looks_right(tab, screen)
    plan(tab)
    carry_out(tab, f"Produced to {topic}-0 at offset 0.")

    tab.open(f"/topic/{topic}")
    fill(tab, "add-partitions", partitions="3")
    plan(tab)
    looks_right(tab, screen)
    carry_out(tab, f"{topic} has 3 partitions.")
    expect(tab.table("partitions").rows).to_have_count(3)
    tab.part("topic-configs-search").fill("delete.retention.ms")
    tab.page.get_by_role("button", name="Edit delete.retention.ms").click()
    tab.part("change-value").fill("5000")
    looks_right(tab, screen)
    plan(tab)
    carry_out(tab, f"Changed delete.retention.ms of {topic}.")
    expect(tab.table("topic-configs").cell("delete.retention.ms", "value")).to_contain_text("5000")
    looks_right(tab, screen)

    fill(tab, "delete-topic", name=topic)
    plan(tab)
    looks_right(tab, screen)
    tab.part("change-confirm").click()
    expect(tab.part("change-sentence")).to_have_text(f"Deleted {topic}.")
    tab.part("change-done").click()
    expect(tab.part("page-overview")).to_be_visible()
    expect(tab.table("topics").cell(topic, "name")).to_have_count(0)


def test_a_group_is_reset_and_deleted(open_tab: OpenTab, workbench: RunningConsole, screen: Screen) -> None:
    group = group_of(screen)
    tab = open_tab(workbench, f"/groups/{group}")
    expect(tab.table("group-offsets").cell("orders-0", "committed")).to_have_text(str(ORDERS))
    looks_right(tab, screen)
    # Ten minutes after the first record.
    fill(tab, "reset-group", to="to-datetime", time=typed(FIRST_MS + 600_000))
    looks_right(tab, screen)
    assert "--to-datetime 2023-11-14T22:23:20.000Z --execute" in plan(tab)
    expect(tab.part("change-sentence")).to_have_text("1 partition of 2 would move.")
    expect(tab.part("change-rows").locator("tbody tr").first).to_contain_text(f"orders-0{ORDERS}10")
    looks_right(tab, screen)
    carry_out(tab, f"Reset 1 of 2 partitions of group {group}.")
    expect(tab.table("group-offsets").cell("orders-0", "committed")).to_have_text("10")

    tab.part("delete-group").click()
    expect(tab.part("change-dialog")).to_be_visible()
    looks_right(tab, screen)
    tab.part("change-next").click()
    expect(tab.part("change-sentence")).to_contain_text("is deleted with 2 committed offsets")
    tab.part("change-confirm").click()
    expect(tab.part("change-sentence")).to_have_text(f"Deleted group {group}.")
    tab.part("change-done").click()
    expect(tab.part("page-groups")).to_be_visible()
    expect(tab.table("groups").cell("billing", "name")).to_be_visible()
    expect(tab.table("groups").cell(group, "name")).to_have_count(0)
    looks_right(tab, screen)


def test_a_config_is_set_and_reset(open_tab: OpenTab, workbench: RunningConsole, screen: Screen) -> None:
    name = CONFIGS[screen]
    tab = open_tab(workbench, "/configs")
    configs = tab.table("broker-configs")
    expect(configs.rows.first).to_be_visible()
    looks_right(tab, screen)
    tab.part("broker-configs-search").fill(name)
    edit = tab.page.get_by_role("button", name=f"Edit {name}", exact=True)
    edit.click()
    tab.part("change-value").fill("lots")
    tab.part("change-next").click()
    expect(tab.part("change-problem")).to_contain_text(name)
    looks_right(tab, screen)
    tab.part("change-value").fill("17")
    assert plan(tab).endswith(f"{name}=17")
    looks_right(tab, screen)
    carry_out(tab, f"Set {name}.")
    cell, source = configs.cell(name, "value"), configs.cell(name, "source")
    expect(cell).to_contain_text("17")
    if screen.is_phone:
        expect(source).to_be_hidden()
        expect(cell.locator(".narrow-only")).to_contain_text("from: this broker, dynamic; default: ")
    else:
        expect(source).to_have_text("this broker, dynamic")
        expect(cell.locator(".narrow-only")).to_be_hidden()
    looks_right(tab, screen)
    edit.click()
    expect(tab.part("change-dialog")).to_contain_text("Set: this broker, dynamic. Its default: ")
    tab.part("change-what").select_option("reset")
    looks_right(tab, screen)
    assert f"config reset {tab.part('target').get_attribute('title')} {name}" in plan(tab)
    carry_out(tab, f"Reset {name}.")
    expect(cell).not_to_contain_text("17")


def test_health(open_tab: OpenTab, consoles: Callable[[str], RunningConsole], screen: Screen) -> None:
    tab = open_tab(consoles("damaged"), "/health")
    tab.part("verify").click()
    expect(tab.part("verify-result")).to_contain_text("Check done")
    expect(tab.part("verdict")).to_contain_text("critical")
    for name, row in (("findings", "wrong checksum"), ("quarantine", "the file ends inside a batch")):
        # All of it is in sight, wherever it stands.
        table = tab.table(name)
        expect(table.rows.filter(has_text=row).get_by_text(row).locator("visible=true")).to_have_count(1)
        box = table.element.locator("xpath=..")
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    looks_right(tab, screen)


def test_schemas(open_tab: OpenTab, consoles: Callable[[str], RunningConsole], screen: Screen) -> None:
    tab = open_tab(consoles("typed"), "/subjects")
    expect(tab.table("subjects").cell("orders-value", "level")).to_have_text("BACKWARD")
    looks_right(tab, screen)
    tab.open("/subjects/orders-value")
    expect(tab.part("verdict-level")).to_contain_text("BACKWARD: not compatible")
    expect(tab.table("fields").cell("id", "declared")).to_have_text("long → string")
    expect(tab.part("difference")).to_be_visible()
    looks_right(tab, screen)


def test_a_search_shows_its_progress_and_is_stopped(
    open_tab: OpenTab, workbench: RunningConsole, screen: Screen
) -> None:
    tab = open_tab(workbench, "/topic/many/records")
    expect(tab.part("record").first).to_be_visible()
    tab.part("where").fill(NEVER)
    tab.part("search").click()
    about = tab.page.locator(".about").first
    expect(about).to_contain_text("Searching: 0 matches")
    tab.page.wait_for_function("() => document.querySelector('[data-testid=search-progress]').value > 0")
    looks_right(tab, screen)
    tab.part("search-stop").click()
    expect(about).to_contain_text("Stopped. 0 matches")
    expect(about).not_to_contain_text(f"{MANY:,}")
    expect(tab.part("search-line")).to_be_hidden()
    expect(tab.part("record")).to_have_count(0)
    looks_right(tab, screen)


def test_matches_are_downloaded_as_parquet(
    open_tab: OpenTab, consoles: Callable[[str], RunningConsole], screen: Screen, tmp_path: Path
) -> None:
    """Of ten seconds, which the reader types in the zone of the browser."""
    tab = open_tab(consoles("events"), "/topic/events/records")
    tab.part("from").fill(typed(FIRST_MS + 100_000))
    tab.part("to").fill(typed(FIRST_MS + 110_000))
    tab.part("search").click()
    expect(tab.part("record")).to_have_count(10)
    looks_right(tab, screen)
    with tab.page.expect_download() as started:
        tab.part("download-parquet").click()
    started.value.save_as(tmp_path / "events.parquet")
    table = pq.read_table(tmp_path / "events.parquet")
    places = zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    assert sorted(offset * EVENT_PARTITIONS + partition for partition, offset in places) == list(range(100, 110))
    assert min(table.column("timestamp").cast(pa.int64()).to_pylist()) == FIRST_MS + 100_000
    expect(tab.part("download-line")).to_contain_text("Downloaded: 10 matches")
    looks_right(tab, screen)
