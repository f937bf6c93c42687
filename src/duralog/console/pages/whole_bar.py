"""A whole and its parts as one bar, with words below: what is clean and new, what stayed and what went."""

from __future__ import annotations

from collections.abc import Sequence

from duralog.console.drawing.compaction_figures import BarPart
from duralog.console.ui.elements import block, text


def draw_bar(name: str, parts: Sequence[BarPart]) -> None:
    with block("div", "whole-bar"):
        text("h3", name)
        with block("div", "whole-parts", aria_hidden="true"):
            for part in parts:
                block("i", part.kind).style(f"flex-grow: {part.size}")
        with block("p", "whole-words"):
            for part in parts:
                with block("span", "legend-entry"):
                    block("i", part.kind, aria_hidden="true")
                    text("span", part.words)
