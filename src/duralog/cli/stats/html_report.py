"""A report as one HTML file: tiles with numbers, charts with a short text, and tables.

The page is self-contained: no script, no font, no address. All text is escaped here; charts are SVG from `svg_charts`,
which escapes its own text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from duralog.cli.stats.report_style import STYLE
from duralog.cli.stats.svg_charts import legend
from duralog.notebook.html_tables import table_html


@dataclass(frozen=True, slots=True)
class Tile:
    """One number, what it is, and what to compare it with."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text. Columns of numbers are aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    """The names of columns of numbers."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: str = ""
    chart: str = ""
    """SVG, see `svg_charts.fitted`."""
    kinds: Sequence[tuple[str, str]] = ()
    """What the colours of the chart mean: kind and words."""
    table: Table | None = None
    table_is_open: bool = False
    """Whether the table is shown without a click."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections that belong together."""

    title: str
    text: str
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()


def page(title: str, subtitle: str, tiles: Sequence[Tile], parts: Sequence[Section | Chapter], footer: str = "") -> str:
    """The whole file."""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>\n"
        + _tiles(tiles)
        + "\n".join(_section(part) if isinstance(part, Section) else _chapter(part) for part in parts)
        + f"\n<footer>{escape(footer)}</footer>\n</main></body></html>\n"
    )


def _tiles(tiles: Sequence[Tile]) -> str:
    return f'<div class="tiles">{"".join(map(_tile, tiles))}</div>\n' if tiles else ""


def _tile(tile: Tile) -> str:
    note = f"<span>{escape(tile.note)}</span>" if tile.note else ""
    return f'<div class="tile"><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>{note}</div>'


def _chapter(chapter: Chapter) -> str:
    text = f"<p>{escape(chapter.text)}</p>" if chapter.text else ""
    return (
        f'<div class="chapter"><h2>{escape(chapter.title)}</h2>{text}</div>\n'
        + _tiles(chapter.tiles)
        + "\n".join(_section(section, "h3") for section in chapter.sections)
    )


def _section(section: Section, heading: str = "h2") -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    keys = f'<div class="keys">{legend(section.kinds)}</div>' if section.kinds else ""
    table = ""
    if section.table is not None:
        is_open = " open" if section.table_is_open else ""
        table = (
            f"<details{is_open}><summary>The figures</summary>"
            f'<div class="scroll">{_table(section.table)}</div></details>'
        )
    return f"<section><{heading}>{escape(section.title)}</{heading}>{text}{keys}{section.chart}{table}</section>"


def _table(table: Table) -> str:
    return table_html(table.columns, table.rows, table.numbers, number_mark=' class="number"', text_mark="")
