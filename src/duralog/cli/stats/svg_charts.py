"""Charts as small inline SVG, without a script.

Colours are classes (`kind`), whose values for light and dark are in `report_style`. Every mark has a tooltip. All text
is escaped here: labels may come from a disk. `fitted` draws a chart twice, for wide and for narrow screens; the style
shows one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from duralog.cli.stats.chart_scales import Scale, count_text, decades, round_ticks, size_ticks, time_labels, time_ticks
from duralog.cli.voice.tables import size_text
from duralog.config.times import format_time

WIDTH = 720
_NARROW = 340
_NARROW_BELOW = 500
_ROW = 32
_CLOSE_ROW = 23
"""The height of a row without a label, which belongs to the bar above."""
_BAR = 20
AXIS = 26
LEFT = 52
"""Space for the numbers of a vertical axis."""
_LABEL, _NARROW_LABEL = 130, 96
"""The least width of labels, and the width on a narrow page."""
_LABEL_CHARACTER = 6.6
_BAR_CHARACTERS = 7.0
"""The approximate width of a character."""

_LABEL_CHARACTERS, _NARROW_LABEL_CHARACTERS = 28, 12
"""A longer label is cut in its middle: names often differ at their end."""

BEFORE, AFTER, GONE = "before", "after", "gone"
"""Kinds: before, after, removed."""
CLEAN, DIRTY, ACTIVE, KEPT = "clean", "dirty", "active", "kept"
"""Kinds of segments: compacted, not yet compacted, still written to, and never compacted at all."""


class Part(NamedTuple):
    size: float
    kind: str
    tip: str


class Lane(NamedTuple):
    label: str
    parts: Sequence[Part]
    text: str = ""
    """Written after the bar."""


class Series(NamedTuple):
    name: str
    values: Sequence[float]
    kind: str


def fitted(draw: Callable[[int], str]) -> str:
    """The chart for a wide page, and for a narrow one."""
    return f'<div class="wide">{draw(WIDTH)}</div><div class="narrow">{draw(_NARROW)}</div>'


def is_narrow(width: int) -> bool:
    return width < _NARROW_BELOW


def lanes(rows: Sequence[Lane], *, name: str, in_bytes: bool = False, unit: str = "", width: int = WIDTH) -> str:
    """Bars of parts, one row each, all on one axis that starts at 0."""
    largest = max((sum(part.size for part in row.parts) for row in rows), default=0)
    wanted = 2 if is_narrow(width) else 4
    ticks = size_ticks(int(largest), wanted + 1) if in_bytes else round_ticks(largest, wanted)
    behind = max((len(row.text) for row in rows), default=0) * _BAR_CHARACTERS
    longest = min(max((len(row.label) for row in rows), default=0), _LABEL_CHARACTERS)
    left = _NARROW_LABEL if is_narrow(width) else max(_LABEL, 14 + longest * _LABEL_CHARACTER)
    right = width - 14 - behind
    scale = Scale(0, max(largest, 1), left, right)
    tops = [5]
    for row in rows[1:]:
        tops.append(tops[-1] + (_ROW if row.label else _CLOSE_ROW))
    height = tops[-1] + _ROW + AXIS
    shown = [tick for tick in ticks if tick <= largest]
    labels = [size_text(int(tick)) if in_bytes else f"{count_text(tick)}{unit}" for tick in shown]
    marks = _vertical_grid(scale, shown, labels, height)
    for top, row in zip(tops, rows, strict=False):
        marks.append(_label(left - 10, top + 14, row.label, width))
        at = 0.0
        for part in row.parts:
            x, end = scale(at), scale(at + part.size)
            # A gap between neighbours, unless they are too thin.
            thickness = max(end - x - (1 if end - x > 3 else 0), 0.75)
            marks.append(
                f'<rect class="{part.kind}" x="{x:g}" y="{top}" width="{thickness:.4g}" height="{_BAR}" rx="2">'
                f"<title>{escape(part.tip)}</title></rect>"
            )
            at += part.size
        marks.append(text_mark(scale(at) + 8, top + 14, row.text, "value"))
    return svg(width, height, name, marks)


def areas(
    times_ms: Sequence[int], series: Sequence[Series], *, name: str, height: int = 250, width: int = WIDTH
) -> str:
    """Values over time, one area over the other: the largest series comes first."""
    if len(times_ms) < 2:
        return ""
    ticks = round_ticks(max(max(one.values, default=0) for one in series))
    across = Scale(times_ms[0], times_ms[-1], LEFT, width - 12)
    up = Scale(0, ticks[-1], height - AXIS, 10)
    marks = [horizontal_line(up(tick), count_text(tick), width) for tick in ticks]
    at = time_ticks(times_ms[0], times_ms[-1], 4 if is_narrow(width) else 7)
    marks += [
        text_mark(across(tick), height - 6, text, "tick middle") for tick, text in zip(at, time_labels(at), strict=True)
    ]
    floor = up(0)
    for one in series:
        points = " ".join(f"{across(time):g},{up(value):g}" for time, value in zip(times_ms, one.values, strict=True))
        outline = f"{across(times_ms[0]):g},{floor:g} {points} {across(times_ms[-1]):g},{floor:g}"
        marks.append(f'<polygon class="{one.kind} area" points="{outline}"/>')
        marks.append(f'<polyline class="{one.kind} line" points="{points}"/>')
    step = across(times_ms[1]) - across(times_ms[0])
    for number, time in enumerate(times_ms):
        values = "\n".join(f"{one.name}: {one.values[number]:,.0f}" for one in series)
        marks.append(
            f'<rect class="touch" x="{across(time) - step / 2:.5g}" y="10" width="{step:.4g}" height="{floor - 10:g}">'
            f"<title>{escape(format_time(time))}\n{escape(values)}</title></rect>"
        )
    return svg(width, height, name, marks)


def ranks(
    counts: Sequence[int],
    *,
    name: str,
    x_name: str,
    y_name: str,
    kind: str = AFTER,
    height: int = 250,
    width: int = WIDTH,
) -> str:
    """Counts by rank, on logarithmic axes.

    `counts` are above 0 and sorted, the largest first. Of many, a few are drawn, equally spaced.
    """
    if not counts:
        return ""
    down = decades(1, counts[0])
    last = max(len(counts), 2)
    right = [tick for tick in decades(1, last) if tick <= last]
    across = Scale(1, last, LEFT, width - 16, is_log=True)
    up = Scale(down[0], down[-1], height - AXIS - 16, 10, is_log=True)
    marks = [horizontal_line(up(tick), count_text(tick), width) for tick in down]
    marks += [text_mark(across(tick), height - 22, count_text(tick), "tick middle") for tick in right]
    marks.append(text_mark((width + 36) / 2, height - 4, f"{x_name} (across), {y_name} (up)", "tick middle"))
    chosen = _apart(len(counts), 4 if is_narrow(width) else 8)
    points = [(across(rank), up(counts[rank - 1])) for rank in chosen]
    marks.append(f'<polyline class="{kind} line" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>')
    for rank, (x, y) in zip(chosen, points, strict=True):
        marks.append(
            f'<circle class="{kind} dot" cx="{x:g}" cy="{y:g}" r="3">'
            f"<title>{escape(f'{x_name} {rank:,}: {counts[rank - 1]:,} {y_name}')}</title></circle>"
        )
    return svg(width, height, name, marks)


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Kinds and what they mean, as HTML."""
    return "".join(f'<span class="key"><i class="{kind}"></i>{escape(text)}</span>' for kind, text in entries)


def _apart(count: int, on_each_decade: int = 8) -> list[int]:
    """Ranks from 1 to the count with equal distances on a logarithmic axis."""
    found: list[int] = []
    at = 1.0
    while at < count:
        if not found or int(at) > found[-1]:
            found.append(int(at))
        at *= 10 ** (1 / on_each_decade)
    return [*found, count] if not found or found[-1] != count else found


def _label(x: float, y: float, text: str, width: int) -> str:
    most = _NARROW_LABEL_CHARACTERS if is_narrow(width) else _LABEL_CHARACTERS
    if len(text) <= most:
        return text_mark(x, y, text, "label end")
    half = (most - 1) // 2
    shown = f"{escape(text[:half])}\u2026{escape(text[-half:])}"
    return f'<text class="label end" x="{x:g}" y="{y:g}"><title>{escape(text)}</title>{shown}</text>'


def _vertical_grid(scale: Scale, ticks: Sequence[float], labels: Sequence[str], height: int) -> list[str]:
    marks = []
    free_from = 0.0
    for tick, label in zip(ticks, labels, strict=True):
        x = scale(tick)
        marks.append(f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="0" y2="{height - AXIS:g}"/>')
        if x >= free_from:
            marks.append(text_mark(x, height - 8, label, "tick middle"))
            free_from = x + 10 + len(label) * _BAR_CHARACTERS
    return marks


def horizontal_line(y: float, label: str, width: int) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{width - 12}" y1="{y:g}" y2="{y:g}"/>'
    return line + text_mark(LEFT - 8, y + 4, label, "tick end")


def text_mark(x: float, y: float, text: str, classes: str) -> str:
    return f'<text class="{classes}" x="{x:g}" y="{y:g}">{escape(text)}</text>' if text else ""


def svg(width: int, height: int, name: str, marks: Sequence[str]) -> str:
    body = "".join(marks)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(name)}">{body}</svg>'
