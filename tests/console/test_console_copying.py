"""Copy buttons: with the clipboard of a secure address, without it, and where nothing can be copied."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.console.conftest import Visit
from tests.support.console.watched_page import WatchedPage

WITHOUT_CLIPBOARD = """() => {
    window.real = navigator.clipboard;
    Object.defineProperty(navigator, "clipboard", { value: undefined });
}"""
"""As on a page that came over plain http from another machine."""
UNABLE = "() => { document.execCommand = () => false; }"
PARTS = ("command", "change", "explanation", "record", "schema")


def opened(visit: Visit, part: str) -> tuple[WatchedPage, Locator, str]:
    """A page with a copy button, the button, and what it should copy."""
    if part == "command":
        tab = visit("empty", "/", permissions=["clipboard-read", "clipboard-write"])
        copied, button = tab.part("command"), tab.page.get_by_role("button", name="Copy the command")
    elif part == "schema":
        tab = visit("typed", "/subjects", permissions=["clipboard-read", "clipboard-write"])
        tab.part("subjects").locator("tbody a").first.click()
        copied, button = tab.part("schema-text"), tab.part("copy-schema")
    else:
        path = {"change": "", "explanation": "/0/compaction", "record": "/0/records?open=1"}[part]
        tab = visit("shop", f"/topic/profiles{path}", permissions=["clipboard-read", "clipboard-write"])
        if part == "change":
            tab.part("add-partitions").click()
            tab.part("change-next").click()
            copied, button = tab.part("change-command"), tab.page.get_by_role("button", name="Copy the command")
        elif part == "record":
            copied, button = tab.part("full-value"), tab.part("copy-value")
        else:
            copied, button = tab.part("explanation"), tab.page.get_by_role("button", name="Copy the explanation")
    expect(button.first).to_be_visible()
    return tab, button.first, copied.first.evaluate("element => element.textContent")


@pytest.mark.parametrize("part", PARTS)
def test_what_is_copied(visit: Visit, part: str) -> None:
    tab, button, expected = opened(visit, part)
    button.click()
    expect(tab.page.get_by_text("Copied", exact=True)).to_be_visible()
    assert _same(tab.page.evaluate("() => navigator.clipboard.readText()"), expected)
    tab.page.evaluate("() => navigator.clipboard.writeText('')")
    tab.page.evaluate(WITHOUT_CLIPBOARD)
    expect(tab.page.get_by_text("Copied", exact=True)).to_have_count(0)
    button.click()
    expect(tab.page.get_by_text("Copied", exact=True)).to_be_visible()
    assert _same(tab.page.evaluate("() => window.real.readText()"), expected)
    expect(button).to_be_focused()


@pytest.mark.parametrize("part", PARTS)
def test_what_cannot_be_copied_is_not_said_to_be(visit: Visit, part: str) -> None:
    tab, button, _ = opened(visit, part)
    tab.page.evaluate(WITHOUT_CLIPBOARD)
    tab.page.evaluate(UNABLE)
    button.click()
    expect(tab.page.get_by_text("Not copied")).to_be_visible()
    expect(tab.page.get_by_text("Copied", exact=True)).to_have_count(0)


def _same(copied: str, shown: str) -> bool:
    """A document may be shown with other blanks than it is copied with."""
    return "".join(copied.split()) == "".join(shown.split()) != ""
