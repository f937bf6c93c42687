"""The console by keyboard, in light and dark, and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit
from tests.console.test_console_pages import PAGES, path_of
from tests.support.console.watched_page import WatchedPage

LUMINANCE = """(element) => {
    const [red, green, blue] = getComputedStyle(element).backgroundColor.match(/[0-9.]+/g).map(Number);
    return (red + green + blue) / 3;
}"""
CONTRASTS = """() => {
    const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const parsed = (text) => text.match(/[0-9.]+/g).map(Number);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parsed(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const poor = [];
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const style = getComputedStyle(element);
        if (!walker.currentNode.data.trim() || !element.checkVisibility({checkOpacity: true})) continue;
        if (element.closest("svg, :disabled, [aria-hidden=true]") || parsed(style.color)[3] < 1) continue;
        const pair = [luminance(parsed(style.color)), luminance(behind(element))].sort((a, b) => b - a);
        const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
        const is_large = parseFloat(style.fontSize) >= 24;
        if (ratio < (is_large ? 3 : 4.5))
            poor.push(`${walker.currentNode.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
    }
    return [...new Set(poor)];
}"""

PRESS_AT_ONCE = """(keys) => void setTimeout(() => keys.forEach(
    (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}))
))"""


def is_dark(tab: WatchedPage) -> bool:
    darkness: float = tab.page.locator("body").evaluate(LUMINANCE)
    return darkness < 100


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system(visit: Visit, scheme: str) -> None:
    assert is_dark(visit("shop", "/", color_scheme=scheme)) == (scheme == "dark")


def test_a_choice_of_colours_is_kept(visit: Visit) -> None:
    tab = visit("shop", "/", color_scheme="light")
    tab.part("theme-toggle").click()
    tab.part("theme-toggle").click()
    expect(tab.part("theme-toggle")).to_have_attribute("aria-label", "Colours: dark")
    assert is_dark(tab)
    tab.open("/groups")
    assert is_dark(tab)
    tab.page.keyboard.press("t")
    expect(tab.part("theme-toggle")).to_have_attribute("aria-label", "Colours: as the system")
    assert not is_dark(tab)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_text_can_be_read(visit: Visit, page: str, scheme: str) -> None:
    """Contrast as WCAG 2 asks for it, level AA."""
    tab = visit("shop", path_of("shop", page), color_scheme=scheme)
    expect(tab.part("title")).to_be_visible()
    assert tab.page.evaluate(CONTRASTS) == []


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_can_be_clicked_can_be_reached_by_tab(visit: Visit, page: str) -> None:
    tab = visit("shop", path_of("shop", page))
    expect(tab.part("title")).to_be_visible()
    unreachable = tab.page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, [role=button]")].filter(
            (element) => element.checkVisibility() && !element.disabled && element.tabIndex < 0
                && element.closest("dialog:not([open]), svg") === null
        ).map((element) => element.outerHTML)"""
    )
    assert unreachable == []
    nameless = tab.page.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select")].filter(
            (element) => element.checkVisibility() && !(element.ariaLabel || element.innerText.trim() || element.title
                || element.labels?.length || element.getAttribute("aria-labelledby"))
        ).map((element) => element.outerHTML)"""
    )
    assert nameless == []


def test_focus_is_seen(visit: Visit) -> None:
    tab = visit("shop")
    unseen = []
    for _ in range(25):
        tab.page.keyboard.press("Tab")
        look = tab.page.evaluate(
            """() => {
                const element = document.activeElement, style = getComputedStyle(element);
                const drawn = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
                const is_seen = drawn || style.boxShadow !== "none" || element === document.body;
                return [element.outerHTML.slice(0, 200), is_seen];
            }"""
        )
        if not look[1]:
            unseen.append(look[0])
    assert unseen == []


def test_a_walk_without_a_mouse(visit: Visit) -> None:
    tab = visit("shop")
    keys = tab.page.keyboard
    keys.press("?")
    expect(tab.part("shortcuts")).to_be_visible()
    keys.press("Escape")
    expect(tab.part("shortcuts")).to_be_hidden()
    keys.press("/")
    expect(tab.part("topics-search")).to_be_focused()
    keys.type("orders")
    expect(tab.table("topics").rows).to_have_count(1)
    link = tab.table("topics").cell("orders", "name").get_by_role("link")
    for _ in range(12):
        keys.press("Tab")
        if link.evaluate("(element) => element === document.activeElement"):
            break
    expect(link).to_be_focused()
    keys.press("Enter")
    expect(tab.part("title")).to_contain_text("orders")
    for second, title in (("g", "Groups"), ("h", "Health"), ("o", "Overview")):
        tab.wait_until_alive()
        # At one moment: the second key counts only for a while after the first.
        tab.page.evaluate(PRESS_AT_ONCE, ["g", second])
        expect(tab.part("title")).to_have_text(title)


def test_keys_that_are_typed_into_a_box_do_nothing_else(visit: Visit) -> None:
    tab = visit("shop")
    tab.part("topics-search").press_sequentially("g o t ? / h")
    expect(tab.part("topics-search")).to_have_value("g o t ? / h")
    expect(tab.part("shortcuts")).to_be_hidden()
    expect(tab.part("title")).to_have_text("Overview")


def test_the_page_has_landmarks_and_a_way_past_the_navigation(visit: Visit) -> None:
    tab = visit("shop")
    for landmark in ("banner", "main"):
        expect(tab.page.get_by_role(landmark)).to_have_count(1)
    expect(tab.page.get_by_role("heading", level=1)).to_have_count(1)
    tab.page.keyboard.press("Tab")
    assert "contents" in tab.focused().inner_text().lower()


@pytest.mark.parametrize("page", PAGES)
def test_fingers_find_what_they_look_for(visit: Visit, page: str) -> None:
    """On a phone, nothing to touch is lower than 24 pixels (WCAG 2.2, level AA), links within text excepted."""
    tab = visit("shop", path_of("shop", page), viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    expect(tab.part("title")).to_be_visible()
    small = tab.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, nav a")].filter(
            (element) => element.checkVisibility() && element.getBoundingClientRect().height < 24
                && element.getBoundingClientRect().height > 1 && element.type !== "checkbox"
        ).map((element) => `${element.getBoundingClientRect().height} ${element.outerHTML.slice(0, 160)}`)"""
    )
    assert small == []
