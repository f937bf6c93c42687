"""A table whose rows stay on the server: it is sorted, searched and paged here, and one page of it is sent.

So a page with a table of 10,000 partitions costs no more than one with fifty. `show` is cheap to call again and again:
nothing is sent unless what is on the page has changed, and the browser replaces only the cells that differ. Cells are
shown as text, and invisible characters or those that reverse a line as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from duralog.console.drawing.shown_bytes import visible
from duralog.console.drawing.words import age_text, number_text, partition_path
from duralog.console.ui.reader_zone import zone_here

Row = TypeVar("Row")
Cell = str | dict[str, Any]
"""Text, or a dict with `text` and any of `href`, `title`, `tone` (good, warn, bad, quiet), `sub`, `narrow` (a line in
narrow windows only, which hide columns), `bar` (0 to 1) and `spark`. With `act`, the name of an action, it is a button:
`DataTable.on_act` gets its row."""

ROWS_ON_A_PAGE = 50
_LONGEST_SEARCH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    name: str
    label: str
    cell: Callable[[Row], Cell]
    sort: Callable[[Row], Any] | None = None
    """The sort key of a row; None sorts below everything. Without it, the column cannot be sorted."""
    numeric: bool = False
    hint: str = ""
    wide: bool = False
    """Hidden in a narrow window."""
    mono: bool = False


def number_column(
    name: str, label: str, value: Callable[[Row], int | None], *, hint: str = "", wide: bool = False
) -> Column[Row]:
    return Column(
        name=name,
        label=label,
        cell=lambda row: number_text(value(row)),
        sort=value,
        numeric=True,
        hint=hint,
        wide=wide,
    )


def partition_column(
    name: str, place: Callable[[Row], tuple[str, int]], path: Callable[[str, int], str] = partition_path
) -> Column[Row]:
    return Column(
        name=name,
        label="Partition",
        cell=lambda row: {"text": "{}-{}".format(*place(row)), "href": path(*place(row))},
        sort=place,
    )


def age_column(name: str, label: str, time_ms: Callable[[Row], int | None], *, wide: bool = False) -> Column[Row]:
    """A column of ages, with the exact time as a tooltip."""
    return Column(
        name=name,
        label=label,
        cell=lambda row: {"text": age_text(time_ms(row)), "title": zone_here().exact(time_ms(row))},
        sort=time_ms,
        numeric=True,
        wide=wide,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows(Generic[Row]):
    """How the rows of a table are identified, searched, sorted and paged."""

    key: Callable[[Row], str]
    search: Callable[[Row], str] | None = None
    """The text of a row that is searched; without it, there is no search."""
    search_from: int = 0
    """With fewer rows, the search is not shown."""
    query: str | None = None
    """The initial query. If it is given, even empty, the browser keeps the query as `q` in the address."""
    sort: str | None = None
    """The column to sort by."""
    descending: bool = False
    tone: Callable[[Row], str] | None = None
    on_a_page: int = ROWS_ON_A_PAGE


class DataTable(Element, Generic[Row], component="assets/data_table.js"):
    def __init__(
        self,
        name: str,
        label: str,
        columns: Sequence[Column[Row]],
        rows: TableRows[Row],
        *,
        empty: str = "Nothing here yet.",
        on_act: Callable[[Row], Any] | None = None,
    ) -> None:
        """`name` is the test id, `label` the name for people and screen readers; `show` sets the rows."""
        super().__init__()
        self._columns = {column.name: column for column in columns}
        self._rows = rows
        self._all: Sequence[Row] = ()
        self._query = (rows.query or "")[:_LONGEST_SEARCH]
        self._sort = rows.sort
        self._descending = rows.descending
        self._page = 0
        self._sent: dict[str, Any] = {}
        self._send(
            {
                "name": name,
                "label": label,
                "initialQuery": self._query,
                "keepsQuery": rows.query is not None,
                "perPage": rows.on_a_page,
                "empty": empty,
                "nothing": "Nothing matches the search.",
                "columns": [
                    {
                        "name": column.name,
                        "label": column.label,
                        "sortable": column.sort is not None,
                        "numeric": column.numeric,
                        "hint": column.hint or None,
                        "wide": column.wide,
                        "mono": column.mono,
                    }
                    for column in columns
                ],
            }
        )
        self._refresh()
        self.on("sort", self._sorted)
        self.on("page", self._turned)
        self.on("search", self._asked)
        if on_act is not None:
            self.on("act", lambda event: self._acted(event, on_act))

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows. The page, the order and the search of the reader are kept."""
        self._all = rows
        self._refresh()

    def _refresh(self) -> None:
        rows = self._found()
        if self._sort is not None and (by := self._columns[self._sort].sort) is not None:
            known = [row for row in rows if by(row) is not None]
            unknown = [row for row in rows if by(row) is None]
            rows = [*sorted(known, key=by, reverse=self._descending), *unknown]
        on_a_page, search, tone = self._rows.on_a_page, self._rows.search, self._rows.tone
        self._page = max(0, min(self._page, (len(rows) - 1) // on_a_page))
        first = self._page * on_a_page
        self._send(
            {
                "rows": [
                    {
                        "key": self._rows.key(row),
                        "tone": None if tone is None else tone(row),
                        "cells": [_seen(column.cell(row)) for column in self._columns.values()],
                    }
                    for row in rows[first : first + on_a_page]
                ],
                "sort": {"by": self._sort, "descending": self._descending},
                "searchable": search is not None and (bool(self._query) or len(self._all) >= self._rows.search_from),
                "page": self._page,
                "total": len(rows),
            }
        )

    def _found(self) -> Sequence[Row]:
        search = self._rows.search
        if search is None or not self._query:
            return self._all
        words = self._query.lower().split()
        return [row for row in self._all if all(word in search(row).lower() for word in words)]

    def _send(self, properties: dict[str, Any]) -> None:
        changed = {name: value for name, value in properties.items() if self._sent.get(name) != value}
        if changed:
            self._sent.update(changed)
            self.props.update(changed)

    def _sorted(self, event: GenericEventArguments) -> None:
        column = self._columns.get(str(event.args))
        if column is None or column.sort is None:
            return
        # Numbers are sorted from the largest, names from the first.
        self._descending = not self._descending if column.name == self._sort else column.numeric
        self._sort = column.name
        self._page = 0
        self._refresh()

    def _turned(self, event: GenericEventArguments) -> None:
        if isinstance(event.args, int):
            self._page = event.args
            self._refresh()

    def _acted(self, event: GenericEventArguments, on_act: Callable[[Row], Any]) -> Any:
        for row in self._all:
            if self._rows.key(row) == event.args:
                return on_act(row)
        return None  # It has gone since.

    def _asked(self, event: GenericEventArguments) -> None:
        self._query = str(event.args)[:_LONGEST_SEARCH]
        self._page = 0
        self._refresh()


def _seen(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return visible(cell)
    return {name: visible(value) if isinstance(value, str) else value for name, value in cell.items()}
