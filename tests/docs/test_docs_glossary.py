"""docs/glossary.md explains words that the code or the other pages use."""

from __future__ import annotations

import re

import pytest

from tests.docs.documented_pages import PAGES
from tests.support.places import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
ROWS = re.findall(r"^\| ([^|]+) \| [^|]+ \| [^|]+ \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
WORDS = [word for cell in ROWS for word in cell.split(", ") if word not in ("word", "---")]


@pytest.fixture(scope="module")
def written() -> str:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *PAGES]
    texts = (path.read_text(encoding="utf-8") for path in sources if path != GLOSSARY)
    return re.sub(r"[\s_-]+", " ", " ".join(texts)).lower()


def test_every_word_is_used(written: str) -> None:
    assert len(WORDS) > 50
    assert [word for word in WORDS if word.lower().removeprefix("a partition's ") not in written] == []


def test_no_word_is_explained_twice() -> None:
    assert len(set(WORDS)) == len(WORDS)
