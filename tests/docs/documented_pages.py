"""Every page of the documentation: what the site has, and what a reader of the project finds."""

from __future__ import annotations

from pathlib import Path

from tests.support.places import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "bench").glob("*.md"),
        *(ROOT / "bench" / "results").glob("*.md"),
        *(path for path in (ROOT / "docs").rglob("*.md") if not path.name.endswith(".template.md")),
    ]
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
