"""CONTRIBUTING.md sends people to files and names that exist."""

from __future__ import annotations

import re

from tests.support.places import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_files_that_are_named_exist() -> None:
    named = set(re.findall(r"`((?:src|tests|oracle|docs|bench|scripts)/[\w./-]+)`", PAGE))
    assert len(named) > 25
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_tables_that_are_named_exist() -> None:
    named = set(re.findall(r"`(_?[A-Z][A-Z_]{3,})`", PAGE)) - {"UNSTEADY"}
    assert named
    sources = [path for folder in ("src", "tests", "oracle") for path in (ROOT / folder).rglob("*.py")]
    defined = {
        name
        for path in sources
        for name in re.findall(r"^(_?[A-Z][A-Z_]+)\b[^=\n]* = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named - defined == set()


def test_every_folder_of_tests_is_in_the_table_of_tests() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.rglob("*.py"))}
    table = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    assert folders - {"__pycache__"} == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
