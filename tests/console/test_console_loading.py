"""No page is blank while it is loaded: before its scripts run, and while the source reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from bench.workers.console_process import RunningConsole
from tests.console.conftest import Visit
from tests.console.test_console_pages import PAGES, path_of
from tests.support.console.watched_page import SHOWN_MS

SHOWN_TEXT = """() => {
    const app = document.querySelector("#app");
    return app && (app.innerText.trim() || getComputedStyle(app, "::after").content);
}"""


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES)
def test_before_the_scripts_run(context: BrowserContext, consoles: Callable[[str], RunningConsole], page: str) -> None:
    """They are on their way for a long time."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    tab: Page = context.new_page()
    tab.set_default_timeout(SHOWN_MS)
    tab.route("**/*.js", hold)
    tab.goto(consoles("shop").address + path_of("shop", page), wait_until="commit")
    tab.wait_for_function(SHOWN_TEXT)
    assert tab.evaluate(SHOWN_TEXT) == '"Loading the page …"'
    assert held
    tab.unroute("**/*.js", hold)  # This lets them go.
    expect(tab.get_by_test_id("title")).to_be_visible()
    assert tab.evaluate(SHOWN_TEXT) != '"Loading the page …"'


def test_a_console_that_answers_later_shows_what_it_waits_for(visit: Visit) -> None:
    """Messages of the page's socket come late: what the page itself brought says what it reads."""
    for path, marker, sentence in (
        ("/topic/orders/0/records", "loading", "Reading records …"),
        ("/topic/orders/records", "loading", "Reading records …"),
        ("/configs", "configs-note", "Reading the configs …"),
        ("/health", "quarantine-note", "Reading the quarantine …"),
    ):
        tab = visit("shop", "/")
        tab.page.route_web_socket("**/*", lambda _: None)
        tab.page.goto(tab.address + path)
        expect(tab.part(marker)).to_have_text(sentence)
        tab.is_cut_off = True
