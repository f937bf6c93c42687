"""docs/durability.md: every promise names a test that exists."""

from __future__ import annotations

import re

from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")


def test_the_named_tests_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 15
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_promise_names_its_test():
    rows = re.findall(r"^\| (?:promise|what fails) \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert rows
    assert all("`tests/" in line for table in rows for line in table.splitlines())
