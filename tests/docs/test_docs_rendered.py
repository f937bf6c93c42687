"""Pages that are made from the code say what the code says; lists of pages are complete."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.support.places import ROOT


@pytest.mark.parametrize("script", ["render_imports.py", "render_options.py", "render_python.py"])
def test_a_rendered_page_is_fresh(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"], capture_output=True, encoding="utf-8", check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.fixture(scope="module")
def first_minute() -> ModuleType:
    script = importlib.util.spec_from_file_location("first_minute", ROOT / "scripts" / "first_minute.py")
    assert script is not None
    assert script.loader is not None
    module = importlib.util.module_from_spec(script)
    sys.modules[script.name] = module  # Where dataclasses look for their module.
    script.loader.exec_module(module)
    return module


def test_the_first_minute_is_that_of_the_readme(first_minute: ModuleType) -> None:
    page = (ROOT / "docs" / "first-minute.md").read_text(encoding="utf-8")
    assert first_minute.readme_digest() in page, "the README has other blocks now: run scripts/first_minute.py"
    assert "the whole story" in page
    for limit in first_minute.LIMITS:
        assert f"\n{first_minute.limit_cells(limit)}" in page, "other limits are measured now: run it again"
    assert "MISSED" not in page


@pytest.mark.parametrize(("load", "is_idle"), [(0.2, True), (2.0, True), (2.1, False), (11.0, False)])
def test_the_first_minute_is_not_measured_on_a_busy_machine(
    first_minute: ModuleType, monkeypatch: pytest.MonkeyPatch, load: float, is_idle: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    if is_idle:
        assert first_minute.load_of_an_idle_machine() == load
        return
    monkeypatch.setattr("sys.argv", ["first_minute.py"])
    monkeypatch.setattr(first_minute, "build_wheel", lambda _: pytest.fail("it began"))
    with pytest.raises(SystemExit, match=f"the load of the machine is {load}, with 2 cores"):
        first_minute.main()


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
