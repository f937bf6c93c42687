"""Links lead somewhere: to files of the project, and to headings that are there. Other sites are not asked."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_blocks import prose

from tests.docs.documented_pages import PAGES, name_of
from tests.support.places import ROOT

LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def anchors(page: Path) -> set[str]:
    """What a link into the page can name: headings, as code hosts spell them, and anchors made by hand."""
    text = prose(page.read_text(encoding="utf-8"))
    found: set[str] = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while (name := slug if not number else f"{slug}-{number}") in found:
            number += 1
        found.add(name)
    return found


def links(page: Path) -> list[str]:
    without_code = re.sub(r"`[^`\n]*`", "", prose(page.read_text(encoding="utf-8")))
    return LINK.findall(without_code)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        address = urlsplit(link)
        if address.scheme:
            assert address.scheme == "https", link
            assert address.netloc, link
            continue
        target = (page.parent / address.path).resolve() if address.path else page
        assert target.is_relative_to(ROOT), link
        assert target.is_file(), f"{link}: there is no such file"
        if address.fragment:
            assert address.fragment in anchors(target), f"{link}: there is no such heading"


def test_there_are_links_to_check() -> None:
    assert sum(len(links(page)) for page in PAGES) > 150


def test_every_page_is_reached_from_the_front() -> None:
    reached, left = set(), [ROOT / "docs" / "index.md", ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        left += [(page.parent / urlsplit(link).path).resolve() for link in links(page) if not urlsplit(link).scheme]
    assert {name_of(page) for page in PAGES} - {name_of(page) for page in reached} == set()
