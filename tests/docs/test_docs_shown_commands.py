"""What the tutorial, the how-to pages and the README show is what happens: their commands are run, in new folders."""

from __future__ import annotations

from pathlib import Path

import pytest
import shown_commands

from tests.docs.documented_pages import PAGES, name_of

SHOWING = [page for page in PAGES if shown_commands.steps(page.read_text(encoding="utf-8"))]
"""Pages with something that runs."""


def needs_spark(page: Path) -> bool:
    text = page.read_text(encoding="utf-8")
    return "$ duralog job" in text or ("file=" in text and "duralog.spark" in text)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=[pytest.mark.spark] if needs_spark(page) else []) for page in SHOWING],
)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    for command in shown_commands.run(page.read_text(encoding="utf-8"), tmp_path):
        place = f"{name_of(page)}:{command.line + 1}: $ {command.text}\n"
        assert command.is_true, place + "\n".join(command.printed)


def test_the_pages_that_should_show_something_do() -> None:
    names = {name_of(page) for page in SHOWING}
    how_to = {name_of(page) for page in PAGES if page.parent.name == "howto"}
    of_other_machines = {"tune-the-machine", "run-as-a-service", "spark-platforms"}
    assert names >= (how_to - {f"docs/howto/{page}.md" for page in of_other_machines})
    assert {"README.md", "docs/tutorial.md"} <= names
