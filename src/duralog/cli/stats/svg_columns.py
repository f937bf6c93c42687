"""Histograms as inline SVG: counts by size, or by time.

Colours, tooltips and escaping are as in `svg_charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from duralog.cli.stats.chart_scales import Scale, count_text, round_ticks, time_labels, time_ticks
from duralog.cli.stats.svg_charts import AFTER, AXIS, LEFT, WIDTH, horizontal_line, svg, text_mark

_TOP = 10
_LABEL_ROOM = 52
"""The least distance of labels; closer ones are left out."""


class Column(NamedTuple):
    value: float
    tip: str


def columns(
    bars: Sequence[Column],
    *,
    name: str,
    labels: Sequence[tuple[float, str]],
    kind: str = AFTER,
    height: int = 220,
    width: int = WIDTH,
) -> str:
    """Vertical bars on an axis that starts at 0. Label positions are in bars: 0.5 is the middle of the first."""
    if not bars:
        return ""
    ticks = round_ticks(max(bar.value for bar in bars))
    across = Scale(0, len(bars), LEFT, width - 12)
    up = Scale(0, ticks[-1], height - AXIS, _TOP)
    floor = up(0)
    marks = [horizontal_line(up(tick), count_text(tick), width) for tick in ticks]
    free_from = 0.0
    for place, text in labels:
        if (x := across(place)) >= free_from and x <= width - 26:
            marks.append(text_mark(x, height - 6, text, "tick middle"))
            free_from = x + _LABEL_ROOM
    gap = 1 if width / len(bars) > 4 else 0.4
    for number, bar in enumerate(bars):
        x, thickness = across(number), across(number + 1) - across(number)
        tip = f"<title>{escape(bar.tip)}</title>"
        if bar.value:
            # A small value is still visible.
            top = min(up(bar.value), floor - 1)
            marks.append(
                f'<rect class="{kind}" x="{x + gap / 2:.5g}" y="{top:.5g}" width="{max(thickness - gap, 0.5):.4g}"'
                f' height="{floor - top:.4g}" rx="1"/>'
            )
        marks.append(
            f'<rect class="touch" x="{x:.5g}" y="{_TOP}" width="{thickness:.4g}" height="{floor - _TOP:g}">{tip}</rect>'
        )
    return svg(width, height, name, marks)


def time_marks(first_ms: int, width_ms: int, count: int) -> list[tuple[float, str]]:
    """Labels for bars of consecutive spans of time."""
    at = time_ticks(first_ms, first_ms + width_ms * count)
    return [((tick - first_ms) / width_ms, text) for tick, text in zip(at, time_labels(at), strict=True)]
