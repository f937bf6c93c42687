"""A broker under load, live: rates move, lag grows, the tail is followed, and nothing breaks when the broker goes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from bench.workers.console_process import RunningConsole
from tests.console.conftest import Visit, complaints
from tests.support.console.busy_broker import GROUP, PARTITIONS, TOPIC, BusyBroker
from tests.support.console.watched_page import SHOWN_MS

PAGES = {
    "overview": "/",
    "topic": f"/topic/{TOPIC}",
    "partition": f"/topic/{TOPIC}/0",
    "records": f"/topic/{TOPIC}/0/records",
    "compaction": f"/topic/{TOPIC}/0/compaction",
    "groups": "/groups",
    "group": f"/groups/{GROUP}",
    "health": "/health",
}
MOVING = re.compile(r"[1-9]")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyBroker]:
    with BusyBroker(tmp_path_factory.mktemp("busy") / "data") as broker:
        yield broker


@pytest.fixture(scope="module", params=["broker", "broker and directory", "directory"])
def console(request: pytest.FixtureRequest, busy: BusyBroker) -> Iterator[RunningConsole]:
    """The same broker, looked at in the three ways that there are."""
    target = {
        "broker": [busy.address],
        "broker and directory": [busy.address, "--data", str(busy.directory)],
        "directory": [str(busy.directory)],
    }[request.param]
    with RunningConsole(*target) as running:
        yield running
        assert complaints(running) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_under_load(visit: Visit, console: RunningConsole, page: str) -> None:
    tab = visit(console, PAGES[page])
    expect(tab.part(f"page-{page}")).to_be_visible()
    expect(tab.part("problem")).to_have_count(0)
    tab.page.set_viewport_size({"width": 360, "height": 740})
    tab.fits_its_window()


def test_the_overview_moves(visit: Visit, console: RunningConsole) -> None:
    tab = visit(console)
    expect(tab.part("rate-records")).to_have_text(MOVING)
    expect(tab.table("topics").cell(TOPIC, "partitions")).to_have_text(str(PARTITIONS))
    before = tab.figure("total-records")
    expect(tab.part("total-records")).not_to_have_text(before)
    cell = tab.table("groups").cell(GROUP, "lag")
    expect(cell.locator(".sub")).to_have_text("1 partition without a commit")
    number = cell.locator("span").first
    expect(number).to_have_text(MOVING)
    lag = int(number.inner_text().replace(",", ""))
    tab.page.wait_for_function(
        """([name, lag]) => {
            const number = document.querySelector(`[data-testid=groups] tr[data-key=${name}] [data-column=lag] span`);
            return Number(number.innerText.replace(/\\D/g, "")) > lag;
        }""",
        arg=[GROUP, lag],
    )


def test_a_record_that_is_written_now_is_seen(visit: Visit, console: RunningConsole, busy: BusyBroker) -> None:
    tab = visit(console, f"/topic/{TOPIC}/0/records?follow=1")
    expect(tab.part("record").first).to_be_visible()
    offset = busy.send(b"seen-now", b'{"told": "just now"}')
    expect(tab.page.locator(f'[data-testid=record][data-offset="{offset}"]')).to_be_visible()


def test_two_readers_at_once(visit: Visit, console: RunningConsole) -> None:
    first, second = visit(console), visit(console, f"/topic/{TOPIC}")
    first.table("topics").search("nothing like this")
    expect(first.table("topics").rows).to_have_count(0)
    expect(second.table("partitions").rows).to_have_count(PARTITIONS)
    for tab in (first, second):
        before = tab.figure("total-records")
        expect(tab.part("total-records")).not_to_have_text(before)


def test_the_console_outlives_its_broker(visit: Visit, tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        BusyBroker(tmp_path_factory.mktemp("stopped") / "data") as busy,
        RunningConsole(busy.address) as console,
    ):
        tab = visit(console)
        expect(tab.part("connection")).to_contain_text("live")
        busy.stop()
        expect(tab.part("connection")).to_contain_text("offline")
        expect(tab.table("topics").cell(TOPIC, "name")).to_be_visible()
        records = visit(console, f"/topic/{TOPIC}/0/records")
        expect(records.part("problem-line")).not_to_be_empty()
        busy.start()
        expect(tab.part("connection")).to_contain_text("live", timeout=2 * SHOWN_MS)
        before = tab.figure("total-records")
        offset = busy.send(b"back", b"again")
        expect(tab.part("total-records")).not_to_have_text(before)
        records.open(f"/topic/{TOPIC}/0/records?offset={offset}")
        expect(records.page.locator(f'[data-testid=record][data-offset="{offset}"]')).to_be_visible()
        assert complaints(console) == []
