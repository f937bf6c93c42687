"""Figures on a page: as tiles, rows, or a bar of parts."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui.elements.mixins.text_element import TextElement

from duralog.console.drawing.compaction_figures import BarPart
from duralog.console.drawing.partition_figures import Figure
from duralog.console.ui.elements import block, text


class FigureList:
    """Named figures whose texts change in place, so that nothing flickers and a selection stays."""

    def __init__(self, classes: str, *, is_tiles: bool = False, marker: str | None = None) -> None:
        self._element = block("dl", f"tiles {classes}" if is_tiles else f"rows {classes}", marker=marker)
        self._item = "tile" if is_tiles else "figure-row"
        self._shown: dict[str, tuple[TextElement, TextElement, TextElement]] = {}

    def show(self, figures: Sequence[Figure]) -> None:
        if [figure.marker for figure in figures] != list(self._shown):
            self._element.clear()
            with self._element:
                self._shown = {figure.marker: self._build(figure) for figure in figures}
        for figure in figures:
            name, value, about = self._shown[figure.marker]
            name.text, value.text, about.text = figure.name, figure.value, figure.about
            if value.props.get("title", "") != figure.tip:
                value.props["title"] = figure.tip

    def _build(self, figure: Figure) -> tuple[TextElement, TextElement, TextElement]:
        with block("div", self._item, marker=figure.marker):
            name = text("dt", figure.name)
            with block("dd"):
                value = text("span", figure.value, "figure")
                about = text("span", figure.about, "below")
        return name, value, about


def draw_bar(name: str, parts: Sequence[BarPart]) -> None:
    """One bar with words below it."""
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
