"""Health: a check finds what `duralog verify` finds, the quarantine is listed, and damage crashes nothing."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.conftest import Stores, Visit
from tests.support.console import told_by_duralog
from tests.support.console.console_stores import ORDERS_A_SEGMENT, PROFILES_A_SEGMENT
from tests.support.console.watched_page import WatchedPage

DAMAGED_LOG = f"orders-0/{ORDERS_A_SEGMENT:020}.log"
DAMAGED_INDEX = f"profiles-0/{PROFILES_A_SEGMENT:020}.timeindex"


def verify(tab: WatchedPage) -> None:
    tab.part("verify").click()
    expect(tab.part("verify-result")).to_contain_text("Check done")
    expect(tab.part("verify")).to_be_visible()


def test_a_check_finds_the_damage(visit: Visit, stores: Stores) -> None:
    told = told_by_duralog.objects("verify", str(stores["damaged"]), exit_code=1)
    errors = [one for one in told if "error" in one]
    assert len(errors) == 2, errors
    tab = visit("damaged", "/health")
    verify(tab)
    findings = tab.table("findings").element
    expect(findings).to_contain_text(DAMAGED_LOG)
    expect(findings).to_contain_text(DAMAGED_INDEX)


def test_a_sound_directory_has_no_findings(visit: Visit, stores: Stores) -> None:
    told_by_duralog.command("verify", str(stores["shop"]))
    tab = visit("shop", "/health")
    verify(tab)
    expect(tab.part("verify-result")).to_contain_text("no errors")
    expect(tab.table("findings").rows.filter(has_text="error")).to_have_count(0)
    expect(tab.part("connection")).to_contain_text("live")


def test_a_verdict_is_one_line_and_problems_fit_a_phone(visit: Visit) -> None:
    tab = visit("damaged", "/health", viewport={"width": 390, "height": 844}, color_scheme="dark")
    verdict, items = tab.part("verdict"), tab.part("health-items")
    expect(verdict).to_contain_text("critical")
    middles = verdict.locator("span").evaluate_all("all => all.map(each => each.getBoundingClientRect().x)")
    assert middles[0] < middles[1]
    expect(items.locator("tbody tr").first).to_be_visible()
    box = items.locator("xpath=..")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_the_quarantine_lists_what_recovery_removed(visit: Visit) -> None:
    table = visit("damaged", "/health").table("quarantine")
    expect(table.rows).to_have_count(1)
    expect(table.rows.first).to_contain_text("orders-1")


def test_the_cleaner_knows_what_is_due(visit: Visit) -> None:
    table = visit("shop", "/health").table("cleaner")
    expect(table.rows.filter(has_text="profiles")).to_have_count(1)


def test_a_check_is_seen_by_who_comes_later(visit: Visit) -> None:
    verify(visit("damaged", "/health"))
    tab = visit("damaged", "/health")
    expect(tab.table("findings").element).to_contain_text(DAMAGED_LOG)


def test_the_records_before_the_damage_can_be_read(visit: Visit) -> None:
    tab = visit("damaged", "/topic/orders/0/records?offset=0")
    expect(tab.part("record").first).to_be_visible()
    tab.open(f"/topic/orders/0/records?offset={ORDERS_A_SEGMENT}")
    expect(tab.part("page-records")).to_contain_text(f"{ORDERS_A_SEGMENT:020}.log")
