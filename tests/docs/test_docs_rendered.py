"""Pages that are made from the code say what the code says; lists of pages are complete."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.places import ROOT


@pytest.mark.parametrize("script", ["render_imports.py", "render_options.py", "render_python.py"])
def test_a_rendered_page_is_fresh(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"], capture_output=True, encoding="utf-8", check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_first_minute_is_that_of_the_readme() -> None:
    script = importlib.util.spec_from_file_location("first_minute", ROOT / "scripts" / "first_minute.py")
    assert script is not None
    assert script.loader is not None
    module = importlib.util.module_from_spec(script)
    sys.modules[script.name] = module  # Where dataclasses look for their module.
    script.loader.exec_module(module)
    page = (ROOT / "docs" / "first-minute.md").read_text(encoding="utf-8")
    assert module.readme_digest() in page, "the README has other blocks now: run scripts/first_minute.py"
    assert "the whole story" in page
    for limit in module.LIMITS:
        assert f"\n{module.limit_cells(limit)}" in page, "other limits are measured now: run scripts/first_minute.py"
    load = re.search(r"load of the machine was\s+(\d+)", page)
    cores = re.search(r"with (\d+) cores", page)
    assert load is not None
    assert cores is not None
    assert "MISSED" not in page or int(load[1]) > int(cores[1]), "a limit was missed on an idle machine"


def test_decisions_have_numbers_of_their_own_and_are_listed_in_order() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "index.md").read_text(encoding="utf-8")
    decisions = sorted(folder.glob("0*.md"))
    assert [f"[{page.name[:4]}]({page.name})" for page in decisions] == re.findall(r"^\| (\[.*?\)) \|", listed, re.M)
    assert len({page.name[:4] for page in decisions}) == len(decisions)
    for page in decisions:
        assert page.read_text(encoding="utf-8").startswith(f"# {page.name[:4]}: "), page.name


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_self_contained_in_light_and_dark(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    drawing = ElementTree.fromstring(text)
    assert drawing.get("role") == "img"
    assert drawing.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1, "the namespace, and no other address"
