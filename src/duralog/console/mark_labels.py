"""Labels above an axis, each on a line down to its place: laid out so that no two lie on each other.

A label is written to the right of its line, or to the left where the picture ends. Labels that would overlap go to
different lanes; lane 0 is next to the axis. Widths are estimates on the wide side, so that what fits here fits on the
page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_CHARACTER_POINTS = 6.3
_GAP = 12.0
_FROM_LINE = 5.0
LANE_HEIGHT = 19.0


@dataclass(frozen=True, slots=True)
class Name:
    """One of the things that lie at the same offset."""

    marker: str
    """How tests find it."""
    text: str
    short: str
    """On a narrow picture."""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    at: float
    names: tuple[Name, ...]
    value: str
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class PlacedMark:
    mark: Mark
    lane: int
    left: float
    """Of the text."""
    right: float
    is_left_of_line: bool
    is_short: bool


def place(marks: Sequence[Mark], width: float) -> list[PlacedMark]:
    """Lanes for all marks. Where a full text is wider than half the picture, the short one stands for it."""
    placed: list[PlacedMark] = []
    # From the right: a label in a higher lane then has its line left of the labels below it, and crosses none.
    for mark in sorted(marks, key=lambda mark: mark.at, reverse=True):
        is_short = text_width(mark, is_short=False) > width * 0.55
        wide = min(text_width(mark, is_short=is_short), width)
        is_left_of_line = mark.at + wide > width
        left = max(mark.at - wide, 0.0) if is_left_of_line else mark.at
        right = left + wide
        taken = {other.lane for other in placed if left < other.right + _GAP and other.left < right + _GAP}
        lane = next(lane for lane in range(len(placed) + 1) if lane not in taken)
        placed.append(PlacedMark(mark, lane, left, right, is_left_of_line, is_short))
    return placed


def lanes_used(placed: Sequence[PlacedMark]) -> int:
    return max((one.lane + 1 for one in placed), default=0)


def text_width(mark: Mark, *, is_short: bool) -> float:
    names = ", ".join(name.short if is_short else name.text for name in mark.names)
    return len(f"{names} {mark.value}") * _CHARACTER_POINTS + 2 * _FROM_LINE


def draw_mark(placed: PlacedMark, *, top: float, bottom: float) -> str:
    """The line from the label down to `bottom`, and the label in its lane. `top` is the top of lane 0."""
    mark = placed.mark
    baseline = top - placed.lane * LANE_HEIGHT + LANE_HEIGHT - 6
    names = "<tspan>, </tspan>".join(
        f'<tspan class="name" data-testid="marker-{escape(name.marker)}">'
        f"{escape(name.short if placed.is_short else name.text)}</tspan>"
        for name in mark.names
    )
    if placed.is_left_of_line:
        x, anchor = min(placed.right, mark.at) - _FROM_LINE, ' text-anchor="end"'
        if placed.left == 0:
            x, anchor = _FROM_LINE, ""
    else:
        x, anchor = placed.left + _FROM_LINE, ""
    strength = " strong" if mark.is_strong else ""
    tips = "\n".join(name.tip for name in mark.names if name.tip)
    return (
        f'<g class="mark{strength}"><title>{escape(tips)}</title>'
        f'<line x1="{mark.at:g}" x2="{mark.at:g}" y1="{baseline - 10:g}" y2="{bottom:g}"/>'
        f'<text x="{x:g}" y="{baseline:g}"{anchor}>{names}'
        f'<tspan class="number"> {escape(mark.value)}</tspan></text></g>'
    )
