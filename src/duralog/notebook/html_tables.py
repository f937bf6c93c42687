"""Values as small HTML tables and strips of blocks, for notebooks.

All text is escaped, and characters that are not printable are shown as escapes. A long table shows its first rows and
the number of the others. Nothing external is loaded: a strip is a row of coloured blocks, without a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

MOST_ROWS = 20
MOST_BLOCKS = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table_html(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Sequence[str] = (),
    *,
    number_mark: str = ' style="text-align: right"',
    text_mark: str = ' style="text-align: left"',
) -> str:
    """A table of cells. `numbers` are the columns that are aligned to the right.

    The alignment is an attribute of each cell: the style of a notebook would align all of them to the right.
    """
    mark = [number_mark if column in numbers else text_mark for column in columns]
    head = "".join(f"<th{one}>{shown(name)}</th>" for one, name in zip(mark, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{one}>{shown(cell)}</td>" for one, cell in zip(mark, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def captioned(
    title: str,
    text: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str] = (),
    *,
    picture: str = "",
) -> str:
    """A title, a summary, an optional picture, a table of the first rows, and the number of the others."""
    words = f" &nbsp;{shown(text)}" if text else ""
    more = f"<div>and {len(rows) - MOST_ROWS:,} more</div>" if len(rows) > MOST_ROWS else ""
    table = table_html(columns, rows[:MOST_ROWS], numbers) if rows else ""
    return f"<div><b>{shown(title)}</b>{words}</div>{picture}{table}{more}"


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a strip, as wide as its size; `text` is its tooltip."""

    size: int
    text: str
    colour: str


def strip_html(blocks: Sequence[Block], *, of_size: int | None = None) -> str:
    """Blocks side by side, each as wide as its part of `of_size`, by default of all of them.

    If there are too many, the last block stands for the rest, in the colour of its first.
    """
    whole = max(of_size if of_size is not None else sum(block.size for block in blocks), 1)
    if len(blocks) > MOST_BLOCKS:
        rest = blocks[MOST_BLOCKS - 1 :]
        text = f"{len(rest):,} more"
        blocks = [*blocks[: MOST_BLOCKS - 1], Block(sum(block.size for block in rest), text, rest[0].colour)]
    inner = "".join(
        f'<div title="{shown(block.text)}" style="width: {block.size / whole:.3%}; min-width: 2px; height: 14px;'
        f' background: {block.colour}; box-shadow: inset -1px 0 rgba(255, 255, 255, 0.6)"></div>'
        for block in blocks
    )
    return f'<div style="display: flex; width: 100%; max-width: 640px; margin: 4px 0">{inner}</div>' if inner else ""


def shown(text: str) -> str:
    """Untrusted text, escaped."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escape(text)


def time_shown(timestamp_ms: int | None) -> str:
    """In UTC, to the second; the bare number where the calendar ends."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
