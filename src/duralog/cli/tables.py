"""Lines in columns. A line is written when its row is there: widths are chosen beforehand, and longer cells push on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duralog.cli.output import Output

Columns = Mapping[str, int]
"""Names and widths; a negative width aligns left."""


def header_line(columns: Columns) -> str:
    return row_line(columns, list(columns))


def row_line(columns: Columns, cells: Sequence[str]) -> str:
    padded = (_pad(name, cell, width) for (name, width), cell in zip(columns.items(), cells, strict=True))
    return "  ".join(padded).rstrip()


def fitting(names: Sequence[str], *, right: Sequence[str] = (), rows: Sequence[Sequence[str]]) -> Columns:
    """Columns as wide as the longest cell in each."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return {name: width if name in right else -width for name, width in zip(names, widths, strict=True)}


def write_table(
    output: Output, names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()
) -> None:
    """The names of the columns, and a line for each row."""
    columns = fitting(names, right=right, rows=rows)
    output.columns(header_line(columns))
    for row in rows:
        output.line(row_line(columns, row))


def _pad(name: str, text: str, width: int) -> str:
    if width < 0:
        return text.ljust(max(-width, len(name)))
    return text.rjust(max(width, len(name)))


def size_text(size_bytes: int) -> str:
    """`1.5 GiB`: three digits, for a line that people read."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def plural(count: int, noun: str) -> str:
    """`1 segment`, `2 segments`, `3 batches`."""
    ending = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{ending}"
