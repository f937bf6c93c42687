"""A partition as a picture: its segments to scale, their state for the cleaner, and the marked offsets.

The result is SVG text. On the axis of offsets, a block is as wide as its offsets and as high as its bytes per offset:
compacted parts are low. On the axis of bytes blocks are as wide as their files. Below, round offsets or bytes and the
times at which segments begin. The SVG contains only our own numbers and words, all escaped. Colours are
classes of the page's stylesheet.

A segment can be pointed at: `data-base-offset` names the first one of a block. One block is in the tab order; the arrow
keys move to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from html import escape

from duralog.console.drawing.mark_labels import LANE_HEIGHT, Mark, Name, draw_marks, lanes_used, place
from duralog.console.drawing.partition_axis import Axis, AxisKind, axis_for
from duralog.console.drawing.partition_blocks import Block, Zone, blocks_of, zones_of
from duralog.console.drawing.partition_figures import time_range
from duralog.console.drawing.words import bytes_text, counted, number_text
from duralog.console.facts.partitions import PartitionFacts

NARROWEST = 260
WIDEST = 2_400
_BAR = 72.0
_TICKS = 24.0
_TIMES = 20.0
_EDGE = 1.0
_CHARACTER_POINTS = 6.3
_LOWEST = 3.0
"""Points of height that a block with a byte in it has."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_START = Name("log-start", "log start", "start", "Log start offset: nothing below it can be read")
_DIRTY = Name("first-dirty", "first dirty", "dirty", "First dirty offset: below it, the log was compacted")
_UNCLEANABLE = Name(
    "first-uncleanable", "first uncleanable", "limit", "First uncleanable offset: no compaction goes beyond it yet"
)
_STABLE = Name("last-stable", "last stable", "LSO", "Last stable offset: from here on, transactions are undecided")
_WATERMARK = Name("high-watermark", "high watermark", "HW", "High watermark: consumers read up to it")
_END = Name("log-end", "end", "end", "Log end offset: the next record gets it")

ZONE_WORDS = {
    Zone.CLEAN: "clean: compacted",
    Zone.DIRTY: "dirty: to be compacted",
    Zone.WAITING: "too new to compact",
    Zone.GONE: "below the log start",
    Zone.PLAIN: "records",
}


@dataclass(frozen=True, slots=True)
class Picture:
    svg: str
    blocks: tuple[Block, ...]
    axis: Axis
    zones: tuple[Zone, ...]
    """Those that are in it, for the legend."""


def draw(
    facts: PartitionFacts, kind: AxisKind, width: float, *, zone: tzinfo = UTC, chosen: int | None = None
) -> Picture:
    """`chosen` is the base offset of the block that is marked as such; `zone` the reader's."""
    width = max(NARROWEST, min(width, WIDEST))
    axis = axis_for(facts, kind, width - 2 * _EDGE)
    blocks = blocks_of(facts.segments, axis)
    zones = zones_of(facts)
    placed = place(marks_of(facts, axis), width - 2 * _EDGE)
    lanes = max(lanes_used(placed), 1)
    top = lanes * LANE_HEIGHT + 4
    bottom = top + _BAR
    height = bottom + _TICKS + (_TIMES if facts.segments else 0)
    parts = [_floor(axis, top)]
    parts += _unknown_blocks(axis, zones, top) if not blocks else []
    parts += [_block(block, axis, zones, top, is_chosen=_is_chosen(block, blocks, chosen)) for block in blocks]
    parts += draw_marks(placed, top=top - 4 - LANE_HEIGHT, bottom=bottom + 4)
    parts += _ticks(axis, bottom, has_records=facts.end_offset > facts.start_offset)
    parts += _times(facts, blocks, axis, bottom + _TICKS, zone)
    svg = (
        f'<svg class="picture-svg" width="100%" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
        f' role="group" aria-label="{escape(summary(facts))}"><g transform="translate({_EDGE:g} 0)">'
        f"{''.join(parts)}</g></svg>"
    )
    return Picture(svg, tuple(blocks), axis, tuple(dict.fromkeys(kind for _, _, kind in zones)))


def summary(facts: PartitionFacts) -> str:
    """The picture in a sentence, for screen readers."""
    name = f"{facts.topic}-{facts.partition}"
    if facts.start_offset == facts.end_offset:
        return f"{name} has no records; the next offset is {number_text(facts.end_offset)}"
    within = f" in {counted(len(facts.segments), 'segment')}, {bytes_text(facts.size_bytes)}" if facts.segments else ""
    return f"{name}: offsets {number_text(facts.start_offset)} to {number_text(facts.end_offset)}{within}"


def marks_of(facts: PartitionFacts, axis: Axis) -> list[Mark]:
    """Those that are at the same offset share a label."""
    named = [
        (facts.start_offset, _START),
        (facts.first_dirty_offset, _DIRTY),
        (facts.first_uncleanable_offset, _UNCLEANABLE),
        (facts.last_stable_offset, _STABLE),
        (facts.high_watermark, _WATERMARK),
        (facts.end_offset, _END),
    ]
    by_offset: dict[int, list[Name]] = {}
    for offset, name in named:
        if offset is not None:
            by_offset.setdefault(offset, []).append(name)
    return [
        Mark(axis.at(offset), tuple(names), number_text(offset), is_strong=_UNCLEANABLE in names or _DIRTY in names)
        for offset, names in sorted(by_offset.items())
    ]


def block_words(block: Block) -> str:
    """A block in a line: what a screen reader says."""
    count = len(block.segments)
    what = (
        "active segment" if block.is_active and count == 1 else "segment" if count == 1 else counted(count, "segment")
    )
    return (
        f"{what}, offsets {number_text(block.base_offset)} to {number_text(block.next_offset)},"
        f" {bytes_text(block.size_bytes)}"
    )


def _is_chosen(block: Block, blocks: Sequence[Block], chosen: int | None) -> bool:
    if chosen is None:
        return False
    return block.base_offset <= chosen < block.next_offset or (block is blocks[-1] and chosen >= block.base_offset)


def _floor(axis: Axis, top: float) -> str:
    return f'<rect class="floor" x="0" y="{top:g}" width="{axis.width:g}" height="{_BAR:g}"/>'


def _block(block: Block, axis: Axis, zones: Sequence[tuple[int, int, Zone]], top: float, *, is_chosen: bool) -> str:
    classes = "segment" + (" active" if block.is_active else "") + (" chosen" if is_chosen else "")
    classes += " broken" if block.trouble else ""
    is_first_stop = is_chosen or block.is_active
    gap = 1.0 if block.right - block.left > 3 else 0.25
    width = max(block.right - block.left - gap, 0.75)
    words = escape(block_words(block))
    parts = [
        f'<g class="{classes}" data-testid="segment" data-base-offset="{block.base_offset}" role="button"'
        f' tabindex="{0 if is_first_stop else -1}" aria-label="{words}">'
        f'<rect class="back" x="{block.left:g}" y="{top:g}" width="{width:.5g}" height="{_BAR:g}"/>'
    ]
    high = max(block.height * _BAR, _LOWEST) if block.size_bytes else 0.0
    for left, right, zone in _pieces(block, axis, zones):
        right = min(right, block.left + width)
        if high and right > left:
            parts.append(
                f'<rect class="{zone}" x="{left:g}" y="{top + _BAR - high:.5g}" width="{right - left:.5g}"'
                f' height="{high:.4g}"/>'
            )
    if block.is_active:
        parts.append(
            f'<rect class="edge" x="{block.left + 0.75:g}" y="{top + 0.75:g}" width="{max(width - 1.5, 1):.5g}"'
            f' height="{_BAR - 1.5:g}"/>'
        )
        if width > 50:
            parts.append(f'<text class="within" x="{block.left + width / 2:.5g}" y="{top + 16:g}">active</text>')
    return "".join((*parts, "</g>"))


def _pieces(block: Block, axis: Axis, zones: Sequence[tuple[int, int, Zone]]) -> list[tuple[float, float, Zone]]:
    """A block, divided where a zone ends in it."""
    found: list[tuple[float, float, Zone]] = []
    for low, high, zone in zones:
        if high <= block.base_offset or low >= block.next_offset:
            continue
        left = block.left if low <= block.base_offset else max(axis.at(low), block.left)
        right = block.right if high >= block.next_offset else min(axis.at(high), block.right)
        found.append((left, right, zone))
    return found


def _unknown_blocks(axis: Axis, zones: Sequence[tuple[int, int, Zone]], top: float) -> list[str]:
    """Where segments are not known: one bar from the start to the end."""
    return [
        f'<rect class="{zone} unknown" x="{axis.at(low):g}" y="{top:g}" width="{axis.at(high) - axis.at(low):.5g}"'
        f' height="{_BAR:g}"/>'
        for low, high, zone in zones
    ]


def _ticks(axis: Axis, y: float, *, has_records: bool) -> list[str]:
    parts = []
    for x, text in axis.ticks() if has_records else ():
        anchor = _anchor(x, len(text) * _CHARACTER_POINTS, axis.width)
        parts.append(
            f'<line class="tick-line" x1="{x:g}" x2="{x:g}" y1="{y:g}" y2="{y + 5:g}"/>'
            f'<text class="tick" x="{x:g}" y="{y + 17:g}" text-anchor="{anchor}">{escape(text)}</text>'
        )
    return parts


def _times(facts: PartitionFacts, blocks: Sequence[Block], axis: Axis, y: float, zone: tzinfo) -> list[str]:
    """The start times of blocks: always the first and the latest, others if there is room."""
    times = time_range(facts)
    if times is None or not blocks:
        return []
    is_one_day = _day(times[0], zone) == _day(times[1], zone)
    first = blocks[0].first_timestamp_ms if blocks[0].first_timestamp_ms is not None else times[0]
    latest = blocks[-1].largest_timestamp_ms if blocks[-1].largest_timestamp_ms is not None else times[1]
    last = clock_text(latest, is_one_day=is_one_day, zone=zone)
    wide = (len(last) + 2) * _CHARACTER_POINTS
    candidates = [(block.left, block.first_timestamp_ms) for block in blocks if block.first_timestamp_ms is not None]
    free_from, free_to = 0.0, axis.width - wide
    parts = []
    if first != latest:
        for x, time_ms in [(0.0, first), *candidates]:
            left = x if x == 0 else x - wide / 2
            if left >= free_from and left + wide <= free_to:
                text = clock_text(time_ms, is_one_day=is_one_day, zone=zone)
                parts.append(_time(x, y, text, "start" if x == 0 else "middle"))
                free_from = left + wide * 1.5
    return [*parts, _time(axis.width, y, last, "end")]


def _time(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="time" x="{x:g}" y="{y + 13:g}" text-anchor="{anchor}">{escape(text)}</text>'


def clock_text(time_ms: int, *, is_one_day: bool, zone: tzinfo) -> str:
    """`14:03:07`, or `31 Jan 14:03`: enough to distinguish the times in the picture."""
    moment = _moment(time_ms, zone)
    if moment is None:
        return f"{time_ms} ms"
    return f"{moment:%H:%M:%S}" if is_one_day else f"{moment.day} {moment:%b} {moment:%H:%M}"


def _day(time_ms: int, zone: tzinfo) -> date | None:
    moment = _moment(time_ms, zone)
    return None if moment is None else moment.date()


def _moment(time_ms: int, zone: tzinfo) -> datetime | None:
    """None for a time beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return None


def _anchor(x: float, wide: float, width: float) -> str:
    if x < wide / 2:
        return "start"
    return "end" if x > width - wide / 2 else "middle"
