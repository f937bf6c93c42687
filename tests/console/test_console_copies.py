"""The page of copies: a comparison is begun, shows a column for each node, and finds damage and missing files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from bench.workers.console_process import RunningConsole
from tests.console.conftest import Visit
from tests.support.cluster.made import flip, logs, three_nodes


@pytest.fixture(scope="module")
def comparing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    nodes = three_nodes(tmp_path_factory.mktemp("copies"))
    flip(logs(nodes[1])[1], 300)
    logs(nodes[2])[3].unlink()
    with RunningConsole(str(nodes[0]), "--copies", str(nodes[0].parent / "broker-*")) as console:
        yield console


def test_copies_are_compared_when_asked(visit: Visit, comparing: RunningConsole) -> None:
    tab = visit(comparing, "/")
    tab.part("nav-copies").click()
    expect(tab.part("copies-summary")).to_contain_text("changes nothing")
    tab.part("compare").click()
    expect(tab.part("copies-summary")).to_contain_text("3 copies of 1 partition compared: 2 findings", timeout=60_000)
    table = tab.table("copies")
    expect(table.cell("orders-0", "node-1")).to_have_text("● equal")
    expect(table.cell("orders-0", "node-2")).to_have_text("damaged")
    expect(table.cell("orders-0", "node-3")).to_have_text("ends early")
    expect(table.cell("orders-0", "node-2").locator(".tone.bad")).to_have_count(1)
    findings = tab.table("findings").element
    expect(findings).to_contain_text("wrong checksum")
    expect(findings).to_contain_text("cut")
    tab.fits_its_window()


def test_the_findings_and_the_way_to_them_fit_a_phone(visit: Visit, comparing: RunningConsole) -> None:
    tab = visit(comparing, "/", viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert tab.part("nav-copies").evaluate("link => link.getBoundingClientRect().right <= innerWidth")
    tab.part("nav-copies").click()
    tab.part("compare").click()
    findings = tab.table("findings").element
    expect(findings).to_contain_text("wrong checksum", timeout=60_000)
    expect(findings).to_contain_text("node 2")
    assert findings.locator("xpath=ancestor-or-self::*[contains(@class, 'table-box')]").first.evaluate(
        "box => box.scrollWidth <= box.clientWidth"
    )


def test_without_copies_there_is_no_such_page(visit: Visit) -> None:
    tab = visit("empty", "/copies", status=404)
    expect(tab.part("nav-copies")).to_have_count(0)
