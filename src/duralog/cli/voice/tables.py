"""Lines in columns, for people.

In a pipe or a file a table has its full width. On a terminal it is shrunk: first long names are shortened in the
middle, then the least important columns are left out, and a line below names them. JSON has them all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from duralog.cli.voice.terminal import cells, shortened
from duralog.config.byte_sizes import size_text as size_text
from duralog.config.plurals import plural as plural

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output

Columns = Mapping[str, int]
"""Names and widths; a negative width aligns left."""
Cut = Sequence[str] | Mapping[str, int] | None
"""Columns whose cells may be shortened, to no less than the given width or that of a short name; None: see `Table`."""

_GAP = "  "
_SHORTEST = 12
"""Names are not shortened below this, as long as a column can be left out instead."""
_SHORTEST_AT_ALL = 6


def header_line(columns: Columns) -> str:
    return row_line(columns, list(columns))


def row_line(columns: Columns, row: Sequence[str]) -> str:
    padded = (_pad(name, cell, width) for (name, width), cell in zip(columns.items(), row, strict=True))
    return _GAP.join(padded).rstrip()


def fitting(names: Sequence[str], *, right: Sequence[str] = (), rows: Sequence[Sequence[str]]) -> Columns:
    """Columns as wide as the longest cell in each."""
    widths = [max(map(cells, column)) for column in zip(names, *rows, strict=True)]
    return {name: width if name in right else -width for name, width in zip(names, widths, strict=True)}


def write_table(
    output: Output,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    cut: Cut = None,
    least: Sequence[str] = (),
) -> None:
    """The names of the columns, and a line for each row. See `Table` for `cut` and `least`."""
    table = Table(output, fitting(names, right=right, rows=rows), cut=cut, least=least)
    table.begin()
    for row in rows:
        table.row(row)
    table.end()


class Table:
    """Rows that are written as they arrive: widths are chosen beforehand, and longer cells shift the rest.

    `cut` are columns whose cells may be shortened: those that are aligned left, if not given. `least` are the least
    important ones, in the order in which they are left out; after them, any but the first column is left out, from the
    right.
    """

    def __init__(
        self,
        output: Output,
        columns: Columns,
        *,
        cut: Cut = None,
        least: Sequence[str] = (),
        indent: int = 0,
    ) -> None:
        self._output = output
        self._names = list(columns)
        names = [name for name, width in columns.items() if width < 0] if cut is None else cut
        self._cut = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, _SHORTEST)
        self.columns = columns if output.width is None else self._narrowed(columns, output.width - indent, least)
        self._places = [self._names.index(name) for name in self.columns]
        self.left_out = [name for name in self._names if name not in self.columns]

    def begin(self) -> None:
        self._output.columns(self.header())

    def row(self, row: Sequence[str]) -> None:
        self._output.line(self.line(row))

    def end(self) -> None:
        """Name the columns that were left out."""
        self._output.left_out(self.left_out)

    def header(self) -> str:
        return header_line(self.columns)

    def line(self, row: Sequence[str]) -> str:
        if self._output.width is None:
            return row_line(self.columns, row)
        shown = [row[place] for place in self._places]
        return row_line(self.columns, [self._cell(name, cell) for name, cell in zip(self.columns, shown, strict=True)])

    def _cell(self, name: str, cell: str) -> str:
        return shortened(cell, max(abs(self.columns[name]), len(name))) if name in self._cut else cell

    def _narrowed(self, columns: Columns, room: int, least: Sequence[str]) -> Columns:
        dropping = [*(name for name in least if name in columns)]
        dropping += [name for name in reversed(self._names[1:]) if name not in dropping]
        kept = dict(columns)
        while True:
            shortest = {
                name: width if len(kept) > 2 else _SHORTEST_AT_ALL for name, width in self._cut.items() if name in kept
            }
            fitted = _cut_to(kept, room, shortest)
            if _width(fitted) <= room or not dropping or len(kept) == 1:
                return fitted
            del kept[dropping.pop(0)]


def _cut_to(columns: Columns, room: int, shortest: Mapping[str, int]) -> dict[str, int]:
    """The columns, with the widest of the named ones shrunk step by step until the table fits or the minimum is
    reached.
    """
    fitted = {name: max(abs(width), len(name)) * (-1 if width < 0 else 1) for name, width in columns.items()}
    over = _width(fitted) - room
    while over > 0:
        wide = [name for name, width in shortest.items() if abs(fitted[name]) > max(width, len(name))]
        if not wide:
            break
        widest = max(wide, key=lambda name: abs(fitted[name]))
        fitted[widest] += 1 if fitted[widest] < 0 else -1
        over -= 1
    return fitted


def _width(columns: Columns) -> int:
    return sum(max(abs(width), len(name)) for name, width in columns.items()) + len(_GAP) * (len(columns) - 1)


def _pad(name: str, text: str, width: int) -> str:
    spaces = " " * (max(abs(width), len(name)) - cells(text))
    return text + spaces if width < 0 else spaces + text


def write_fact(output: Output, label: str, text: str) -> None:
    """A label and a text; on a terminal the text is wrapped to the right of the label."""
    if output.width is None:
        output.line(fact_line(label, text))
        return
    for number, line in enumerate(textwrap.wrap(text, max(output.width - 14, 20), break_on_hyphens=False) or [""]):
        output.line(fact_line("" if number else label, line))


def fact_line(label: str, text: str) -> str:
    return row_line({"what": -12, "text": -1}, [label, text])
