"""The table of all configs of a topic or a broker: search, and a button on each that can be changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui.events import GenericEventArguments

from duralog.console.drawing.config_rows import ConfigRow
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows
from duralog.console.ui.elements import block, text

_ROWS_ON_A_PAGE = 20


class ConfigTable:
    def __init__(self, name: str, label: str, on_edit: Callable[[ConfigRow], Awaitable[None]]) -> None:
        self._rows: Sequence[ConfigRow] = ()
        self._only_changed = False
        self._table = _table(name, label, on_edit)
        with self._table, block("label", "switch"):
            switch = block("input", type="checkbox", marker=f"{name}-changed")
            text("span", "Only those that are not at their default")
        switch.on("change", self._toggle, js_handler="(event) => emit(event.target.checked)")

    def set_visibility(self, is_visible: bool) -> None:
        self._table.set_visibility(is_visible)

    def show(self, rows: Sequence[ConfigRow]) -> None:
        self._rows = rows
        self._table.show([row for row in rows if not (self._only_changed and row.is_default)])

    def _toggle(self, event: GenericEventArguments) -> None:
        self._only_changed = event.args is True
        self.show(self._rows)


def _table(name: str, label: str, on_edit: Callable[[ConfigRow], Any]) -> DataTable[ConfigRow]:
    return DataTable(
        name,
        label,
        (
            Column(
                name="name",
                label="Config",
                cell=lambda row: {"text": row.name, "sub": row.about},
                sort=lambda row: row.name,
            ),
            Column(name="value", label="Value", cell=_value_cell, mono=True),
            Column(
                name="default",
                label="Default",
                cell=lambda row: {"text": row.default, "tone": "quiet"},
                mono=True,
                wide=True,
            ),
            Column(name="source", label="From", cell=_source_cell, sort=_by_source, wide=True),
            Column(name="edit", label="", cell=_edit_cell),
        ),
        TableRows(
            key=lambda row: row.name,
            search=lambda row: f"{row.name} {row.value} {row.source} {row.about}",
            sort="source",
            on_a_page=_ROWS_ON_A_PAGE,
        ),
        empty="Everything has its default.",
        on_act=on_edit,
    )


def _by_source(row: ConfigRow) -> tuple[bool, str, str]:
    """Configs that were set come first."""
    return row.is_default, row.source, row.name


def _value_cell(row: ConfigRow) -> Cell:
    return {"text": row.value, "sub": row.in_words, "narrow": row.origin}


def _source_cell(row: ConfigRow) -> Cell:
    return {"text": row.source, "tone": "quiet" if row.is_default else ""}


def _edit_cell(row: ConfigRow) -> Cell:
    if not row.can_change:
        return {"text": "at start", "tone": "quiet", "title": "Read when the broker starts: it cannot be changed here."}
    return {"text": "Edit", "act": f"Edit {row.name}"}
