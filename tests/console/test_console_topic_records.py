"""The records of a whole topic in the browser: merged, searched, shared and downloaded, in another zone than ours."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

import duralog
from bench.workers.console_process import RunningConsole
from duralog.console.drawing.reader_zone import zone_of
from tests.console.conftest import Stores, Visit
from tests.support.console.console_stores import EVENT_PARTITIONS, EVENTS, FIRST_MS, KEEP_EVERYTHING, event
from tests.support.console.watched_page import WatchedPage

PAGE = 50
Consoles = Callable[[str], RunningConsole]
ZONE = "Australia/Eucla"
HERE = "/topic/events/records"


def open_tab(visit: Visit, path: str, **settings: object) -> WatchedPage:
    """In a browser that was here before: its cookie has its zone."""
    return visit("events", path, timezone_id=ZONE, **settings)


def numbers(tab: WatchedPage) -> list[int]:
    """Of the events in the list, from top to bottom."""
    ids = tab.part("record").evaluate_all("rows => rows.map(row => row.dataset.id)")
    places = [tuple(map(int, one.split(":"))) for one in ids]
    return [offset * EVENT_PARTITIONS + partition for partition, offset in places]


def wait_for(tab: WatchedPage, number: int) -> None:
    offset, partition = divmod(number, EVENT_PARTITIONS)
    expect(tab.page.locator(f'[data-id="{partition}:{offset}"]')).to_be_attached()


def search(tab: WatchedPage, **fields: str) -> None:
    for name, value in fields.items():
        tab.part(name).fill(value)
    tab.part("search").click()


def test_partitions_are_merged_by_time_and_paged_both_ways(visit: Visit) -> None:
    tab = open_tab(visit, "/topic/events")
    tab.part("topic-records").click()
    wait_for(tab, EVENTS - 1)
    assert numbers(tab) == list(range(EVENTS - 1, EVENTS - 1 - PAGE, -1))
    expect(tab.part("records").locator("[aria-sort]")).to_have_text("Time (Eucla) ↓")
    tab.part("older").click()
    wait_for(tab, EVENTS - 1 - PAGE)
    assert numbers(tab) == list(range(EVENTS - 1 - PAGE, EVENTS - 1 - 2 * PAGE, -1))
    tab.page.go_back()
    wait_for(tab, EVENTS - 1)
    tab.part("oldest").click()
    wait_for(tab, 0)
    assert numbers(tab) == list(range(PAGE))
    tab.part("newer").click()
    wait_for(tab, PAGE)
    assert numbers(tab) == list(range(PAGE, 2 * PAGE))


def test_a_search_is_an_address_and_goes_back(visit: Visit) -> None:
    tab = open_tab(visit, HERE)
    wait_for(tab, EVENTS - 1)
    zone = zone_of(ZONE)
    search(
        tab,
        where="$.customer.id = 7 and header source = web",
        **{"from": zone.text(FIRST_MS + 100_000), "to": zone.text(FIRST_MS + 300_000)},
    )
    expected = [number for number in range(299, 99, -1) if number % 20 == 7]
    expect(tab.part("record")).to_have_count(len(expected))
    assert numbers(tab) == expected
    expect(tab.page.locator(".about").first).to_contain_text(f"{len(expected)} matches")
    tab.part("record").first.click()
    expect(tab.part("record-details").locator("h2")).to_contain_text("Partition")
    # Another search: the panel of a record that is not part of it is closed.
    search(tab, where="$.number = 500", **{"from": "", "to": ""})
    expect(tab.part("record")).to_have_count(1)
    expect(tab.part("record-details")).to_have_count(0)
    tab.page.go_back()
    expect(tab.part("record")).to_have_count(len(expected))
    expect(tab.part("from")).to_have_value(zone.text(FIRST_MS + 100_000, timespec="milliseconds"))
    # The same link, for a reader elsewhere.
    expect(tab.page).to_have_url(re.compile("from=.*Z"))
    shared = visit("events", tab.page.url.removeprefix(tab.address), timezone_id="America/Lima")
    expect(shared.part("record")).to_have_count(len(expected))
    assert numbers(shared) == expected
    expect(shared.part("where")).to_have_value("$.customer.id = 7 and header source = web")


def test_a_mistake_is_shown_at_its_place(visit: Visit) -> None:
    tab = open_tab(visit, HERE)
    wait_for(tab, EVENTS - 1)
    search(tab, where="$.amount > and x")
    expect(tab.part("filter-problem")).to_contain_text("expected a text or a number after >, found and")
    expect(tab.part("filter-place")).to_have_text("$.amount > and x\n           ^")
    search(tab, where="", partitions="0-7")
    expect(tab.part("filter-problem")).to_contain_text("it has 0 to 2")
    search(tab, partitions="2", offsets="5-6")
    expect(tab.part("record")).to_have_count(2)
    expect(tab.part("filter-problem")).to_be_hidden()
    assert numbers(tab) == [6 * 3 + 2, 5 * 3 + 2]


def test_more_matches_than_are_shown_can_be_downloaded(visit: Visit, tmp_path: Path) -> None:
    tab = open_tab(visit, f"{HERE}?order=oldest&where={quote('not key = k3')}")
    expect(tab.page.locator(".about").first).to_contain_text("narrow the search or download all")
    with tab.page.expect_download() as started:
        tab.part("download-csv").click()
    assert started.value.suggested_filename == "events-records.csv"
    started.value.save_as(tmp_path / "events.csv")
    with (tmp_path / "events.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == EVENTS * 9 // 10
    expect(tab.part("download-line")).to_contain_text("Downloaded: 1,080 matches")
    # It says nothing about other records.
    search(tab, where="key = k3")
    expect(tab.part("download-line")).to_be_hidden()


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/download/events?as=xls", 400, "give as=jsonl, csv, parquet"),
        ("/download/events?as=csv&where=%24.a+%3E", 400, "at character 6"),
        ("/download/events?as=csv&partitions=9", 400, "it has 0 to 2"),
        ("/download/events?as=csv&from=noon", 400, "is not a time"),
        ("/download/nothing?as=csv", 404, "no topic nothing"),
        ("/download/..%2f..%2fetc?as=csv", 404, ""),
    ],
)
def test_a_download_that_cannot_be(consoles: Consoles, path: str, status: int, why: str) -> None:
    with pytest.raises(HTTPError) as raised:
        urlopen(consoles("events").address + path)
    assert raised.value.status == status
    assert why in raised.value.read().decode()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_it_fits_screens_and_phones(visit: Visit, width: int, colours: str) -> None:
    tab = open_tab(visit, f"{HERE}?where=k7&open=1:2", viewport={"width": width, "height": 844}, color_scheme=colours)
    expect(tab.part("full-value")).to_contain_text('"number": 7')
    expect(tab.part("record")).to_have_count(EVENTS // 10)
    tab.fits_its_window()
    tab.part("close-record").click()
    tab.part("filter-help").locator("summary").click()
    expect(tab.part("filter-help")).to_contain_text("$.items[*].name")
    tab.fits_its_window()


def test_what_comes_is_shown_while_following(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("events", tmp_path / "events")
    with RunningConsole(str(directory)) as console:
        tab = visit(console, f"{HERE}?follow=1", timezone_id=ZONE)
        wait_for(tab, EVENTS - 1)
        expect(tab.part("follow")).to_have_attribute("aria-pressed", "true")
        with duralog.open(directory, KEEP_EVERYTHING) as store:
            for number in range(EVENTS, EVENTS + 6):
                store.partition("events", number % EVENT_PARTITIONS).append([event(number)])
        wait_for(tab, EVENTS + 5)
        expect(tab.part("record")).to_have_count(PAGE + 6)
        assert numbers(tab) == list(range(EVENTS + 5, EVENTS - 1 - PAGE, -1))
        tab.is_cut_off = True
