"""Every page on every kind of directory: it answers, it says where it is, nothing goes wrong in the browser.

`visit` checks at the end of each test that no page had an error, a failed request or one to another address; `consoles`
checks that the process had nothing to complain of.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit
from tests.support.console.console_stores import HOSTILE_GROUP

PLACES = {
    "golden": ("plain", "readers"),
    "shop": ("orders", "billing"),
    "many": ("orders", "readers-01"),
    "damaged": ("orders", "billing"),
    "hostile": ("hostile", HOSTILE_GROUP),
}
"""A topic and a group of each kind of directory."""

PAGES = {
    "overview": "/",
    "topic": "/topic/{topic}",
    "topic-records": "/topic/{topic}/records",
    "partition": "/topic/{topic}/0",
    "records": "/topic/{topic}/0/records",
    "compaction": "/topic/{topic}/0/compaction",
    "groups": "/groups",
    "group": "/groups/{group}",
    "health": "/health",
    "configs": "/configs",
    "acls": "/acls",
}
PAGES_OF_EMPTY = ("overview", "groups", "health", "configs", "acls")
PAGES_OF_ALL_KINDS = ("configs", "acls")
"""They look the same on each of them."""

EVERY_PAGE = [(kind, page) for kind in PLACES for page in PAGES if page not in PAGES_OF_ALL_KINDS or kind == "golden"]
EVERY_PAGE += [("empty", page) for page in PAGES_OF_EMPTY]


def path_of(kind: str, page: str) -> str:
    topic, group = PLACES.get(kind, ("", ""))
    return PAGES[page].format(topic=quote(topic, safe=""), group=quote(group, safe=""))


@pytest.mark.parametrize(("kind", "page"), EVERY_PAGE)
def test_a_page_opens_and_fits_a_screen_and_a_phone(visit: Visit, kind: str, page: str) -> None:
    tab = visit(kind, path_of(kind, page))
    expect(tab.part(f"page-{page}")).to_be_visible()
    expect(tab.page).to_have_title(re.compile("duralog"))
    tab.fits_its_window()
    tab.page.set_viewport_size({"width": 360, "height": 740})
    expect(tab.part("title")).to_be_visible()
    tab.fits_its_window()
    assert tab.page.evaluate("() => window.harmed") is None
