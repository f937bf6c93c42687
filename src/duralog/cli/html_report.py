"""A report as one HTML file: numbers that stand out, charts with a few words, the figures behind them in tables.

The page needs nothing from anywhere else: no script, no font, no address. Everything that is given as text is escaped;
charts are SVG from `duralog.cli.svg_charts`, which escapes what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from duralog.cli.report_style import STYLE
from duralog.cli.svg_charts import legend


@dataclass(frozen=True, slots=True)
class Tile:
    """One number, what it is, and what to compare it with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as they are to be shown. Columns of numbers stand to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    """Which columns are numbers."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: str = ""
    chart: str = ""
    """SVG."""
    kinds: Sequence[tuple[str, str]] = ()
    """What the colours of the chart mean: kind and words."""
    table: Table | None = None


def page(title: str, subtitle: str, tiles: Sequence[Tile], sections: Sequence[Section], footer: str = "") -> str:
    """The whole file."""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>\n"
        f'<div class="tiles">{"".join(map(_tile, tiles))}</div>\n'
        + "\n".join(map(_section, sections))
        + f"\n<footer>{escape(footer)}</footer>\n</main></body></html>\n"
    )


def _tile(tile: Tile) -> str:
    note = f"<span>{escape(tile.note)}</span>" if tile.note else ""
    return f'<div class="tile"><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>{note}</div>'


def _section(section: Section) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    keys = f'<div class="keys">{legend(section.kinds)}</div>' if section.kinds else ""
    chart = f'<div class="scroll">{section.chart}</div>' if section.chart else ""
    table = ""
    if section.table is not None:
        table = f'<details><summary>The figures</summary><div class="scroll">{_table(section.table)}</div></details>'
    return f"<section><h2>{escape(section.title)}</h2>{text}{keys}{chart}{table}</section>"


def _table(table: Table) -> str:
    side = [' class="number"' if column in table.numbers else "" for column in table.columns]
    head = "".join(f"<th{one}>{escape(name)}</th>" for one, name in zip(side, table.columns, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{one}>{escape(cell)}</td>" for one, cell in zip(side, row, strict=True)) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
