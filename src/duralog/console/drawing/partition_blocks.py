"""The segments of a partition as blocks that can be drawn and selected: neighbours that are too thin are merged.

A log of 5,000 segments has more of them than a screen has columns. Blocks keep the order and lose nothing: their sizes
add up to the log's, and each segment is in just one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from duralog.console.drawing.partition_axis import Axis, AxisKind
from duralog.console.facts.partitions import PartitionFacts, SegmentFacts

THINNEST = 4.0
"""Points across, of a block that can be seen and pointed at."""
_TOO_HIGH_SHARE = 0.02
"""This share of the width may exceed the height of the picture, so that one dense segment does not flatten all
others."""


class Zone(StrEnum):
    """The state of a part of the log for the cleaner."""

    GONE = "gone"
    """Below the log's start: still in a file, no longer in the log."""
    CLEAN = "clean"
    DIRTY = "dirty"
    """New since the last compaction, and the next one may compact it."""
    WAITING = "waiting"
    """New, and may not be compacted yet."""
    PLAIN = "plain"
    """Of a log that is not compacted, or whose policy is unknown."""


@dataclass(frozen=True, slots=True)
class Block:
    segments: tuple[SegmentFacts, ...]
    left: float
    right: float
    height: float
    """0 to 1: bytes per offset, relative to the densest blocks. Always 1 on an axis of bytes."""

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def next_offset(self) -> int:
        return self.segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_active(self) -> bool:
        return self.segments[-1].is_active

    @property
    def trouble(self) -> str | None:
        return next((segment.trouble for segment in self.segments if segment.trouble), None)

    @property
    def first_timestamp_ms(self) -> int | None:
        return next((one.first_timestamp_ms for one in self.segments if one.first_timestamp_ms is not None), None)

    @property
    def largest_timestamp_ms(self) -> int | None:
        return max(
            (one.largest_timestamp_ms for one in self.segments if one.largest_timestamp_ms is not None), default=None
        )


def blocks_of(segments: Sequence[SegmentFacts], axis: Axis) -> list[Block]:
    groups = list(_grouped(segments, axis))
    edges = [axis.at(group[0].base_offset) for group in groups]
    edges.append(axis.at(segments[-1].next_offset) if segments else 0.0)
    if len(groups) == 1 and edges[1] - edges[0] < THINNEST:
        # A log without a record: its one segment takes all the room.
        edges[1] = axis.width
    _widen_the_last(edges)
    if axis.kind is AxisKind.BYTES:
        heights = [1.0] * len(groups)
    else:
        heights = _heights(groups, [right - left for left, right in pairwise(edges)])
    return [
        Block(tuple(group), left, right, height)
        for group, (left, right), height in zip(groups, pairwise(edges), heights, strict=True)
    ]


def _grouped(segments: Sequence[SegmentFacts], axis: Axis) -> Iterator[list[SegmentFacts]]:
    group: list[SegmentFacts] = []
    for segment in segments:
        is_wide = axis.at(segment.next_offset) - axis.at(segment.base_offset) >= THINNEST
        # Users look for the active segment, so it is never merged.
        if group and (is_wide or segment.is_active):
            yield group
            group = []
        group.append(segment)
        if axis.at(segment.next_offset) - axis.at(group[0].base_offset) >= THINNEST:
            yield group
            group = []
    if group:
        yield group


def _widen_the_last(edges: list[float]) -> None:
    """The active segment is at the end and may be too thin, or empty: those before it give it room."""
    limit = edges[-1] - THINNEST
    for place in range(len(edges) - 2, 0, -1):
        if edges[place] <= limit:
            return
        edges[place] = max(limit, 0.0)
        limit -= 1.0


def _heights(groups: Sequence[Sequence[SegmentFacts]], widths: Sequence[float]) -> list[float]:
    densities = [
        sum(one.size_bytes for one in group) / max(group[-1].next_offset - group[0].base_offset, 1) for group in groups
    ]
    allowed = sum(widths) * _TOO_HIGH_SHARE
    highest = max(densities, default=0.0)
    for density, width in sorted(zip(densities, widths, strict=True), reverse=True):
        highest = density
        allowed -= width
        if allowed < 0:
            break
    return [min(density / highest, 1.0) if highest else 0.0 for density in densities]


def zones_of(facts: PartitionFacts) -> list[tuple[int, int, Zone]]:
    """Ranges of offsets from the first file's base offset to the end of the log, in order, none of them empty."""
    first = min([facts.start_offset, *(segment.base_offset for segment in facts.segments[:1])])
    start, end = facts.start_offset, facts.end_offset
    bounds = [(first, start, Zone.GONE)]
    if facts.first_dirty_offset is None:
        bounds.append((start, end, Zone.PLAIN))
    else:
        dirty = _between(start, facts.first_dirty_offset, end)
        uncleanable = facts.first_uncleanable_offset
        waiting = end if uncleanable is None else _between(dirty, uncleanable, end)
        bounds += [(start, dirty, Zone.CLEAN), (dirty, waiting, Zone.DIRTY), (waiting, end, Zone.WAITING)]
    return [(low, high, zone) for low, high, zone in bounds if low < high]


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
