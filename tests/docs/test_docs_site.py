"""The site builds without a warning, has every page and a search, and loads nothing from other addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documented_pages import PAGES
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-c",
            "docs",
            "-d",
            str(folder / "trees"),
            ".",
            str(folder),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).is_file()
    assert "docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_sidebar(site: Path) -> None:
    front = (site / "docs" / "index.html").read_text(encoding="utf-8")
    sidebar = front[front.index('class="sidebar-tree"') :]
    for page in ("tutorial", "howto/restore-after-corruption", "commands", "reference/python", "architecture"):
        assert f'href="{page}.html"' in sidebar, page


def test_it_can_be_searched(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "quarantin" in index
    assert (site / "search.html").is_file()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loading = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]+\"")
    for page in site.rglob("*.html"):
        assert loading.findall(page.read_text(encoding="utf-8")) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")) == [], style
