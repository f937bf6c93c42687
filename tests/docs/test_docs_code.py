"""Python in the pages is Python: every block compiles. (What is marked to run is run by the session of its page.)"""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_blocks import blocks

from tests.docs.documented_pages import PAGES, name_of

WITH_PYTHON = [page for page in PAGES if any(b.language == "python" for b in blocks(page.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_compiles(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language != "python":
            continue
        compile("\n" * block.line + block.text, str(page), "exec")


def test_there_is_python_to_compile() -> None:
    assert len(WITH_PYTHON) > 8


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_marks_that_mean_something(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8")):
        for mark in block.marks:
            assert mark == "run" or mark.startswith("file="), f"line {block.line}: {mark}"
