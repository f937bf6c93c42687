"""Typed records and the pages of subjects in the browser: wide and narrow, light and dark, in another zone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from bench.workers.console_process import RunningConsole
from duralog.testing import running_broker
from tests.console.conftest import Stores, Visit, complaints
from tests.support.console.console_stores import KEEP_EVERYTHING
from tests.support.console.typed_store import HOSTILE_NAME, HOSTILE_SUBJECT
from tests.support.console.watched_page import WatchedPage

WIDE = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light", "timezone_id": "Asia/Tokyo"}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "timezone_id": "America/New_York"}
SCREENS = pytest.mark.parametrize("settings", [WIDE, PHONE], ids=["wide", "phone"])


def harmless(tab: WatchedPage) -> None:
    assert tab.page.evaluate("window.harmed") is None
    tab.fits_its_window()


@SCREENS
def test_a_record_is_shown_decoded_with_its_schema(visit: Visit, settings: Any) -> None:
    tab = visit("typed", "/topic/orders/0/records?open=0", **settings)
    value = tab.part("full-value")
    expect(value).to_contain_text('"gift": true')
    expect(value).to_contain_text(json.dumps(HOSTILE_NAME))
    expect(tab.part("schema-value").get_by_role("link")).to_have_text("orders-value version 1 (id 1)")
    expect(tab.part("formats-summary")).to_have_text("Keys: string. Values: avro.")
    harmless(tab)
    tab.part("record-details").get_by_role("button", name="bytes", exact=True).last.click()
    expect(value).to_contain_text("00000000  00 00 00 00 01")
    tab.part("record-details").get_by_role("button", name="decoded", exact=True).click()
    expect(value).to_contain_text('"id": 0')
    tab.part("schema-value").get_by_role("link").click()
    expect(tab.part("page-subject")).to_be_visible()
    expect(tab.part("schema-part").get_by_role("heading")).to_have_text("Version 1")


@SCREENS
def test_decoded_values_are_searched_and_downloaded(visit: Visit, settings: Any) -> None:
    tab = visit("typed", "/topic/orders/records", **settings)
    tab.part("where").fill("$.id >= 38")
    tab.part("search").click()
    expect(tab.part("record")).to_have_count(2)
    expect(tab.part("record-value").first).to_contain_text('{"id":39,"customer":"customer-4","note":"note 39"')
    link = tab.part("download-jsonl")
    with tab.page.expect_download() as download:
        link.click()
    lines = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert [line["value"]["note"] for line in lines] == ["note 38", "note 39"]
    tab.part("download-decoded").uncheck()
    with tab.page.expect_download() as download:
        link.click()
    assert "value_schema" not in download.value.path().read_text()
    tab.part("record").first.click()
    expect(tab.part("schema-value")).to_contain_text("version 2")
    tab.open("/topic/numbers/records?open=0:0")
    tab.part("formats-summary").click()
    expect(tab.part("formats-findings")).to_contain_text("The format of the values is not certain")
    expect(tab.part("download-decoded")).to_be_hidden()
    harmless(tab)


@SCREENS
def test_subjects_versions_and_their_difference(visit: Visit, settings: Any) -> None:
    tab = visit("typed", "/", **settings)
    tab.part("nav-schemas").click()
    subjects = tab.table("subjects")
    expect(subjects.rows).to_have_count(6)
    expect(subjects.cell("orders-value", "level")).to_have_text("BACKWARD")
    expect(subjects.cell("money", "level")).to_have_text("FULL")
    expect(subjects.cell("gone-value", "name")).to_contain_text("soft-deleted")
    harmless(tab)
    subjects.cell("orders-value", "name").get_by_role("link").click()
    expect(tab.part("versions-part")).to_be_visible()
    expect(tab.part("references")).to_contain_text("imports shop.Money from money version 1")
    expect(tab.part("verdict-level")).to_contain_text("BACKWARD: not compatible")
    fields = tab.table("fields")
    expect(fields.cell("id", "declared")).to_have_text("long → string")
    expect(fields.cell("total", "change")).to_have_text("added")
    expect(fields.cell("note", "change")).to_have_text("removed")
    tab.part("compare-from").select_option("1")
    expect(tab.part("comparison-part").get_by_role("heading")).to_have_text("From version 1 to 3")
    tab.part("compare-to").select_option("2")
    expect(tab.part("comparison-part").get_by_role("heading")).to_have_text("From version 1 to 2")
    expect(tab.part("verdict-level")).to_contain_text("BACKWARD: compatible")
    expect(tab.part("verdict").nth(1)).to_contain_text("int cannot read long")
    expect(tab.part("difference")).to_contain_text("timestamp-millis")
    harmless(tab)
    tab.part("subject-topic").click()
    expect(tab.part("page-topic")).to_be_visible()
    tab.part("topic-subjects").get_by_role("link", name="Schema orders-value").click()
    expect(tab.part("page-subject")).to_be_visible()


@SCREENS
@pytest.mark.parametrize(
    ("subject", "level", "field"),
    [("payments-value", "FULL: compatible", "Payment.tags"), ("clicks-value", "FULL: not compatible", "y")],
)
def test_other_types(visit: Visit, settings: Any, subject: str, level: str, field: str) -> None:
    tab = visit("typed", f"/subjects/{subject}", **settings)
    expect(tab.part("verdict-level")).to_contain_text(level)
    expect(tab.table("fields").cell(field, "change")).to_have_text("added")
    harmless(tab)


def test_subjects_with_names_and_texts_that_do_harm(visit: Visit) -> None:
    tab = visit("typed", f"/subjects/{quote(HOSTILE_SUBJECT, safe='')}?version=9999999999999&against=<b>")
    expect(tab.part("schema-text")).to_contain_text("</pre><script>")
    expect(tab.part("title")).to_have_text(HOSTILE_SUBJECT)
    harmless(tab)
    tab.open("/subjects/nothing-value")
    expect(tab.part("problem-sentence")).to_contain_text("There is no subject nothing-value")
    tab = visit("shop", "/subjects")
    expect(tab.part("empty")).to_contain_text("There is no topic _schemas")
    expect(tab.part("command")).to_contain_text("--schema-registry")


def test_a_broker_with_a_registry(visit: Visit, stores: Stores, tmp_path: Path) -> None:
    directory = stores.copied("typed", tmp_path / "data")
    with (
        running_broker(KEEP_EVERYTHING, data=str(directory)) as broker,
        broker.schema_registry() as url,
        RunningConsole(broker.bootstrap_servers, "--schema-registry", url) as console,
    ):
        tab = visit(console, "/subjects")
        expect(tab.table("subjects").cell("orders-value", "level")).to_have_text("BACKWARD")
        expect(tab.page.get_by_text(f"of the registry {url}")).to_be_visible()
        tab.open("/topic/orders/0/records?open=39")
        expect(tab.part("schema-value")).to_contain_text("orders-value version 2 (id 2)")
        tab.open("/topic/orders")
        expect(tab.part("topic-subjects")).to_contain_text("Schema orders-value")
        assert complaints(console) == []
        tab.is_cut_off = True


def test_a_registry_that_is_away(visit: Visit, stores: Stores) -> None:
    with RunningConsole(str(stores["typed"]), "--schema-registry", "http://127.0.0.1:9") as console:
        tab = visit(console, "/subjects")
        expect(tab.part("schemas-trouble")).to_contain_text("127.0.0.1:9")
        tab.part("read-again").click()
        expect(tab.part("schemas-trouble")).to_be_visible()
        tab.open("/topic/orders/0/records")
        expect(tab.part("record")).to_have_count(40)
        assert complaints(console) == []
