"""The record browser: what is in the log, from wherever it is asked for, whatever the bytes are."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Locator, expect

import duralog
from duralog.console.drawing.reader_zone import zone_of
from tests.console.conftest import Stores, Visit
from tests.support.console.console_stores import (
    CUSTOMERS,
    FIRST_MS,
    HARM,
    HOSTILE_BYTES,
    HOSTILE_JSON,
    HOSTILE_TEXTS,
    MINUTE_MS,
    ORDERS,
)
from tests.support.console.watched_page import WatchedPage

PAGE = 50


def offsets(tab: WatchedPage) -> list[int]:
    """Those in sight, all at one moment."""
    return sorted(map(int, tab.part("record").evaluate_all("rows => rows.map(row => row.dataset.offset)")))


def record(tab: WatchedPage, offset: int) -> Locator:
    return tab.page.locator(f'[data-testid=record][data-offset="{offset}"]')


def open_record(tab: WatchedPage, offset: int) -> Locator:
    record(tab, offset).click()
    panel = tab.part("record-details")
    expect(panel.locator("h2")).to_have_text(f"Offset {offset}")
    return panel


def test_the_newest_records_are_shown_first(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records")
    expect(record(tab, ORDERS - 1)).to_be_visible()
    assert offsets(tab) == list(range(ORDERS - PAGE, ORDERS))


def test_back_to_the_start_and_forth_to_the_end(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records")
    expect(record(tab, ORDERS - 1)).to_be_attached()
    seen = set(offsets(tab))
    for start in range(ORDERS - 2 * PAGE, -1, -PAGE):
        tab.part("older").click()
        expect(record(tab, start)).to_be_attached()
        seen |= set(offsets(tab))
    assert seen == set(range(ORDERS))
    expect(tab.part("older")).to_be_disabled()
    tab.part("newest").click()
    expect(record(tab, ORDERS - 1)).to_be_attached()


def test_jump_to_an_offset(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records")
    expect(tab.part("record").first).to_be_visible()
    for wanted in (0, 1, 49, 50, 123, ORDERS - 1):
        tab.part("jump-offset").fill(str(wanted))
        tab.part("jump-offset").press("Enter")
        expect(tab.part("record").first).to_have_attribute("data-offset", str(wanted))
        assert offsets(tab) == list(range(wanted, min(wanted + PAGE, ORDERS)))


def test_jump_to_a_time(visit: Visit, stores: Stores) -> None:
    time_ms = FIRST_MS + 100 * MINUTE_MS + 1
    with duralog.open(stores["shop"], read_only=True) as store:
        found = store.partition("orders", 0).offset_for_timestamp(time_ms)
    assert found is not None
    assert found.offset == 101
    tab = visit("shop", "/topic/orders/0/records")
    expect(tab.part("record").first).to_be_visible()
    tab.part("jump-time").fill(str(time_ms))
    tab.part("jump-time").press("Enter")
    expect(record(tab, found.offset)).to_be_visible()
    assert offsets(tab)[0] == found.offset


def test_find_a_key(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records")
    expect(tab.part("record").first).to_be_visible()
    tab.part("find-key").fill("customer-7")
    tab.part("find-key").press("Enter")
    expected = list(range(7, ORDERS, CUSTOMERS))
    expect(tab.part("record")).to_have_count(len(expected))
    assert offsets(tab) == expected
    tab.part("find-key").fill("customer-none")
    tab.part("find-key").press("Enter")
    expect(tab.part("record")).to_have_count(0)


def test_the_pane_follows_a_search_for_a_key(visit: Visit) -> None:
    """It never stays on a record of the list before."""
    tab = visit("shop", "/topic/orders/0/records?offset=120")
    open_record(tab, 121)
    tab.part("find-key").fill("customer-7")
    tab.part("find-key").press("Enter")
    expect(tab.part("record-details")).to_have_count(0)
    expect(tab.part("record")).to_have_count(len(range(7, ORDERS, CUSTOMERS)))
    expect(tab.part("record-details")).to_have_count(0)
    open_record(tab, 27)
    expect(tab.page).to_have_url(re.compile("key=customer-7.*open=27|open=27.*key=customer-7"))
    tab.part("find-key").fill("customer-9")
    tab.part("find-key").press("Enter")
    expect(record(tab, 29)).to_be_visible()
    expect(tab.part("record-details")).to_have_count(0)
    tab.page.go_back()
    expect(tab.part("record-details").locator("h2")).to_have_text("Offset 27")
    expect(record(tab, 27)).to_have_attribute("aria-current", "true")
    tab.part("close-record").click()
    expect(tab.part("record-details")).to_have_count(0)


def test_a_record_in_full(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records?offset=120")
    panel = open_record(tab, 120)
    laid_out = json.dumps({"order": 120, "items": [{"name": "tea", "pieces": 0}]}, indent=2)
    expect(panel).to_contain_text(laid_out.splitlines()[1].strip().rstrip(","))
    for text in ("customer-0", "source", "web", "number", "120", "zstd"):
        expect(panel).to_contain_text(text)


def test_a_record_that_is_not_on_the_page_can_be_looked_at_in_every_form(visit: Visit) -> None:
    """A link that was shared when the log was shorter."""
    tab = visit("shop", "/topic/orders/0/records?open=3")
    expect(tab.part("full-value")).to_contain_text('"order": 3')
    tab.part("record-details").get_by_role("button", name="bytes").last.click()
    expect(tab.part("full-value")).to_contain_text("7b 22 6f 72")


def test_tombstones_are_marked(visit: Visit) -> None:
    tab = visit("shop", "/topic/profiles/0/records?offset=0")
    expect(record(tab, 9)).to_be_visible()
    expect(record(tab, 9)).to_contain_text("tombstone")
    expect(record(tab, 8)).not_to_contain_text("tombstone")


def test_markers_and_aborted_records_of_kafka_are_marked(visit: Visit, stores: Stores) -> None:
    with duralog.open(stores["golden"], read_only=True) as store:
        log = store.partition("txn", 0)
        seen = {one.offset for one in log.read(log.start_offset)}
        committed = {one.offset for one in log.read(log.start_offset, isolation="read_committed")}
    assert seen > committed
    aborted = min(seen - committed)
    tab = visit("golden", f"/topic/txn/0/records?offset={aborted}")
    expect(record(tab, aborted)).to_contain_text("abort")


@pytest.mark.parametrize(
    ("topic", "partition"), [("codecs", number) for number in range(5)] + [("plain", 0), ("trimmed", 0)]
)
def test_records_that_kafka_wrote(visit: Visit, stores: Stores, topic: str, partition: int) -> None:
    with duralog.open(stores["golden"], read_only=True) as store:
        log = store.partition(topic, partition)
        expected = [one.offset for _, one in zip(range(PAGE), log.read(log.start_offset), strict=False)]
    tab = visit("golden", f"/topic/{topic}/{partition}/records?offset={expected[0]}")
    expect(record(tab, expected[-1])).to_be_attached()
    assert offsets(tab) == expected


def test_a_link_to_a_place_can_be_shared_and_gone_back_to(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0/records?offset=100")
    expect(tab.part("record").first).to_be_visible()
    tab.part("jump-offset").fill("200")
    tab.part("jump-offset").press("Enter")
    expect(record(tab, 200)).to_be_visible()
    # The address may follow a moment after the rows.
    expect(tab.page).to_have_url(re.compile("offset=200"))
    shared = visit("shop", tab.page.url.removeprefix(tab.address))
    expect(record(shared, 200)).to_be_visible()
    tab.page.go_back()
    expect(record(tab, 100)).to_be_visible()


def test_hostile_records_are_text(visit: Visit) -> None:
    tab = visit("hostile", "/topic/hostile/0/records?offset=0")
    for number in range(len(HOSTILE_TEXTS) + len(HOSTILE_JSON) + len(HOSTILE_BYTES)):
        open_record(tab, number)
        assert tab.page.evaluate("() => window.harmed") is None, number
        harmful = tab.part("page-records").locator("img, script, iframe, a[href^=http], a[href^=javascript]")
        assert harmful.count() == 0, number


def test_markup_is_shown_as_it_was_written(visit: Visit) -> None:
    tab = visit("hostile", "/topic/hostile/0/records?offset=0")
    expect(record(tab, 0)).to_contain_text(HOSTILE_TEXTS[0])
    expect(open_record(tab, 0)).to_contain_text(HOSTILE_TEXTS[0])


def test_marks_that_turn_text_round_are_escaped(visit: Visit) -> None:
    number = next(n for n, text in enumerate(HOSTILE_TEXTS) if "\u202e" in text)
    tab = visit("hostile", f"/topic/hostile/0/records?offset={number}")
    shown = open_record(tab, number).inner_text() + record(tab, number).inner_text()
    assert not any(mark in shown for mark in "\u202e\u2066\u2069")
    assert "202e" in shown


def test_a_large_value_is_cut_and_can_be_had_whole(visit: Visit) -> None:
    number = len(HOSTILE_TEXTS) + len(HOSTILE_JSON) + len(HOSTILE_BYTES)
    tab = visit("hostile", f"/topic/hostile/0/records?offset={number}")
    panel = open_record(tab, number)
    assert len(panel.inner_text()) < 100_000
    panel.get_by_test_id("more").click()
    tab.page.wait_for_function("() => document.querySelector('[data-testid=record-details]').innerText.length > 200000")
    assert tab.page.evaluate("() => window.harmed") is None


def test_a_search_for_a_hostile_key(visit: Visit) -> None:
    tab = visit("hostile", "/topic/hostile/0/records")
    expect(tab.part("record").first).to_be_visible()
    tab.part("find-key").fill(HOSTILE_TEXTS[0])
    tab.part("find-key").press("Enter")
    expect(tab.part("record")).to_have_count(1)
    assert offsets(tab) == [0]
    assert HARM in record(tab, 0).inner_text()


def test_times_are_those_of_the_browsers_zone(visit: Visit) -> None:
    """Also on the first page of all, which was asked for before the server knew the zone."""
    tab = visit("shop", "/topic/orders/0/records?offset=100", timezone_id="Australia/Eucla")
    expect(tab.part("zone")).to_have_text("Times: Australia/Eucla, UTC+08:45 now")
    shown = zone_of("Australia/Eucla").text(FIRST_MS + 100 * MINUTE_MS, timespec="milliseconds")
    expect(record(tab, 100).locator(".time")).to_have_text(shown)
    tab.part("jump-time").fill(shown)
    tab.part("jump-time").press("Enter")
    expect(tab.page).to_have_url(re.compile(r"time=20\d\d-.*Z"))
    expect(tab.part("record").first).to_have_attribute("data-offset", "100")
    expect(tab.part("jump-time")).to_have_value(shown)
