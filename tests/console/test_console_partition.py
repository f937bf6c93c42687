"""The picture of a partition: its segments, what stands where, and what one segment is made of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import WebSocketRoute, expect

import duralog
from bench.workers.console_process import RunningConsole
from duralog.cli.voice.tables import size_text
from tests.console.conftest import Stores, Visit
from tests.support.console import told_by_duralog
from tests.support.console.console_stores import (
    KEEP_EVERYTHING,
    MANY_SEGMENTS,
    ORDERS,
    ORDERS_A_SEGMENT,
    order,
    profile,
)
from tests.support.console.watched_page import WatchedPage

PLACES = [
    ("golden", "trimmed", 0),
    ("golden", "txn", 0),
    ("golden", "codecs", 3),
    ("golden", "__consumer_offsets", 0),
    ("shop", "orders", 0),
    ("shop", "orders", 1),
    ("shop", "profiles", 0),
    ("many", "orders", 899),
    ("hostile", "hostile", 0),
]


def number_text(number: int) -> str:
    """Digits as the console groups them."""
    return f"{number:,}"


def bases(tab: WatchedPage) -> list[int]:
    """Of all segments, at one moment."""
    return list(map(int, tab.part("segment").evaluate_all("all => all.map(one => one.dataset.baseOffset)")))


@pytest.mark.parametrize(("kind", "topic", "partition"), PLACES)
def test_the_picture_is_of_this_log(visit: Visit, stores: Stores, kind: str, topic: str, partition: int) -> None:
    told = told_by_duralog.partitions(stores[kind])[topic, partition]
    tab = visit(kind, f"/topic/{topic}/{partition}")
    expect(tab.part("segment")).to_have_count(len(told.base_offsets))
    assert bases(tab) == list(told.base_offsets)
    expect(tab.part("about")).to_contain_text(size_text(told.size_bytes))
    for name, offset in (("start-offset", told.start_offset), ("end-offset", told.end_offset)):
        expect(tab.part(name).locator(".figure")).to_have_text(number_text(offset))


def test_the_picture_fits_although_a_message_is_lost(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0")
    dropped: list[str | bytes] = []

    def passed_on(page: WebSocketRoute) -> None:
        server = page.connect_to_server()

        def sent(message: str | bytes) -> None:
            if not dropped and re.search(r'"args":\[?"?\[?"?\d+"?\]', str(message)):
                dropped.append(message)
            else:
                server.send(message)

        page.on_message(sent)

    tab.page.route_web_socket(re.compile("/_nicegui_ws/"), passed_on)
    tab.open("/topic/orders/0")
    tab.page.wait_for_function(
        """() => {
            const svg = document.querySelector(".picture-svg");
            return svg && Math.abs(svg.viewBox.baseVal.width - svg.parentElement.clientWidth) < 4;
        }"""
    )
    assert dropped


def test_segments_are_drawn_to_scale(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0")
    expect(tab.part("segment")).to_have_count(ORDERS // ORDERS_A_SEGMENT)
    widths = (
        tab.part("segment").locator(".back").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    )
    assert max(widths) - min(widths) < 3


def test_a_segment_shows_its_files_and_its_codecs(visit: Visit, stores: Stores) -> None:
    tab = visit("shop", "/topic/orders/0")
    tab.page.locator(f'[data-testid=segment][data-base-offset="{ORDERS_A_SEGMENT}"]').hover()
    details = tab.part("segment-details")
    expect(details).to_contain_text(f"{ORDERS_A_SEGMENT:020}")
    size = (stores["shop"] / "orders-0" / f"{ORDERS_A_SEGMENT:020}.log").stat().st_size
    expect(details).to_contain_text(size_text(size))
    for word in ("zstd", ".index", ".timeindex"):
        expect(details).to_contain_text(word)


def test_segments_by_keyboard(visit: Visit) -> None:
    tab = visit("shop", "/topic/orders/0")
    tab.part("segment").last.focus()
    expect(tab.part("segment-details")).to_contain_text(f"{ORDERS - ORDERS_A_SEGMENT:020}")
    tab.page.keyboard.press("Home")
    expect(tab.part("segment-details")).to_contain_text(f"{0:020}")
    tab.page.keyboard.press("ArrowRight")
    expect(tab.part("segment-details")).to_contain_text(f"{ORDERS_A_SEGMENT:020}")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(f'[data-testid=record][data-offset="{ORDERS_A_SEGMENT}"]')).to_be_visible()


def test_the_clean_and_the_dirty_part(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    """After a compaction and some more records, the first dirty offset divides the picture."""
    directory = stores.copied("shop", tmp_path / "data")
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        log = store.partition("profiles", 0)
        store.compact("profiles", 0)
        first_dirty = log.end_offset
        log.append([profile(number) for number in range(40)])
        log.roll()
        log.append([profile(1)])
    with RunningConsole(str(directory)) as console:
        tab = visit(console, "/topic/profiles/0")
        expect(tab.part("marker-first-dirty")).to_be_attached()
        expect(tab.part("first-dirty-offset").locator(".figure")).to_have_text(str(first_dirty))
        expect(tab.part("picture").locator("rect.clean").first).to_be_visible()
        expect(tab.part("picture").locator("rect.dirty").first).to_be_visible()


def test_heading_and_picture_change_during_writes(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("shop", tmp_path / "data")
    with duralog.open(directory, KEEP_EVERYTHING) as store, RunningConsole(str(directory)) as console:
        tab, topic = visit(console, "/topic/orders/0"), visit(console, "/topic/orders")
        expect(tab.part("segment")).to_have_count(ORDERS // ORDERS_A_SEGMENT)
        expect(topic.page.locator(".heading .about")).to_have_text("cleanup.policy=delete")
        store.alter_topic_config("orders", {"cleanup.policy": "compact,delete"})
        expect(topic.page.locator(".heading .about")).to_have_text("cleanup.policy=compact,delete")
        log = store.partition("orders", 0)
        log.roll()
        log.append([order(number) for number in range(30)])
        log.flush()
        expect(tab.part("segment")).to_have_count(ORDERS // ORDERS_A_SEGMENT + 1)
        expect(tab.part("end-offset").locator(".figure")).to_have_text(str(ORDERS + 30))


def test_many_segments_of_one_log(visit: Visit) -> None:
    tab = visit("many", "/topic/orders/17")
    expect(tab.part("segment")).to_have_count(MANY_SEGMENTS)
