"""Labels above an axis, each with a line down to its position, laid out without overlaps.

A label is written to the right of its line, or to the left where the picture ends. Labels that would overlap go to
different lanes; lane 0 is next to the axis. Widths are estimated generously, so that labels fit on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain, permutations

_CHARACTER_POINTS = 6.3
_GAP = 12.0
_FROM_LINE = 5.0
LANE_HEIGHT = 19.0


@dataclass(frozen=True, slots=True)
class Name:
    """One of several names at the same offset."""

    marker: str
    """The id that tests use."""
    text: str
    short: str
    """The text on a narrow picture."""
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
    """Lanes for all marks. If the full text is wider than half the picture, the short one is used.

    If possible, the stacking is one in which no line crosses another label.
    """
    # Labels left of their lines from the left, then those right of their lines from the right: mostly this is it.
    shaped = sorted(
        (_shaped(mark, width) for mark in marks),
        key=lambda one: (0, one.mark.at) if one.is_left_of_line else (1, -one.mark.at),
    )
    return min(_stacks(shaped), key=_crossings, default=[])


def _stacks(shaped: Sequence[PlacedMark]) -> Iterator[list[PlacedMark]]:
    """Ways to stack them, up to the first without a crossing."""
    turned = sorted((_left_of_line(one) for one in shaped), key=lambda one: one.mark.at)
    for order in chain(permutations(shaped), permutations(turned)):
        stack = _stacked(order)
        yield stack
        if not _crossings(stack):
            return


def _left_of_line(placed: PlacedMark) -> PlacedMark:
    """Placed to the left of its line, if there is room."""
    left = placed.mark.at - (placed.right - placed.left)
    return (
        placed
        if placed.is_left_of_line or left < 0
        else replace(placed, left=left, right=placed.mark.at, is_left_of_line=True)
    )


def _stacked(shaped: Sequence[PlacedMark]) -> list[PlacedMark]:
    """Each in the lowest lane that is free where it is."""
    placed: list[PlacedMark] = []
    for one in shaped:
        taken = {other.lane for other in placed if one.left < other.right + _GAP and other.left < one.right + _GAP}
        lane = next(lane for lane in range(len(placed) + 1) if lane not in taken)
        placed.append(replace(one, lane=lane))
    return placed


def _crossings(placed: Sequence[PlacedMark]) -> int:
    return sum(
        lower.lane < higher.lane and lower.left < higher.mark.at < lower.right for higher in placed for lower in placed
    )


def _shaped(mark: Mark, width: float) -> PlacedMark:
    is_short = text_width(mark, is_short=False) > width * 0.55
    wide = min(text_width(mark, is_short=is_short), width)
    is_left_of_line = mark.at + wide > width
    left = max(mark.at - wide, 0.0) if is_left_of_line else mark.at
    return PlacedMark(mark, 0, left, left + wide, is_left_of_line, is_short)


def lanes_used(placed: Sequence[PlacedMark]) -> int:
    return max((one.lane + 1 for one in placed), default=0)


def text_width(mark: Mark, *, is_short: bool) -> float:
    names = ", ".join(name.short if is_short else name.text for name in mark.names)
    return len(f"{names} {mark.value}") * _CHARACTER_POINTS + 2 * _FROM_LINE


def draw_marks(placed: Sequence[PlacedMark], *, top: float, bottom: float) -> list[str]:
    """Lines down to `bottom`, and over them the labels. `top` is the top of lane 0."""
    baselines = [top - one.lane * LANE_HEIGHT + LANE_HEIGHT - 6 for one in placed]
    lines = [
        f'<line class="{_classes(one.mark)}" x1="{one.mark.at:g}" x2="{one.mark.at:g}"'
        f' y1="{y - 10:g}" y2="{bottom:g}"/>'
        for one, y in zip(placed, baselines, strict=True)
    ]
    return [*lines, *(_label(one, y) for one, y in zip(placed, baselines, strict=True))]


def _label(placed: PlacedMark, y: float) -> str:
    mark = placed.mark
    names = "<tspan>, </tspan>".join(
        f'<tspan class="name" data-testid="marker-{escape(name.marker)}">'
        f"{escape(name.short if placed.is_short else name.text)}</tspan>"
        for name in mark.names
    )
    x, anchor = placed.left + _FROM_LINE, ""
    if placed.is_left_of_line and placed.left > 0:
        x, anchor = mark.at - _FROM_LINE, ' text-anchor="end"'
    tips = "\n".join(name.tip for name in mark.names if name.tip)
    return (
        f'<text class="{_classes(mark)}" x="{x:g}" y="{y:g}"{anchor}><title>{escape(tips)}</title>{names}'
        f'<tspan class="number"> {escape(mark.value)}</tspan></text>'
    )


def _classes(mark: Mark) -> str:
    return "mark strong" if mark.is_strong else "mark"
