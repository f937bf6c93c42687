"""The horizontal axis of a partition's picture: to scale in offsets, or in bytes of the log.

A compacted log has wide ranges of offsets with few bytes in them, so the same segments look quite different on the two
axes. Both are a piecewise linear function from offsets to amounts (offsets or bytes). The arithmetic is on integers
until the last step, so an offset of 2**62 is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from duralog.config.byte_sizes import size_text
from duralog.console.drawing.words import number_text
from duralog.console.facts.partitions import PartitionFacts, SegmentFacts

_STEPS = (1, 2, 5)
_CHARACTER_POINTS = 6.4
"""Across, of a digit of a tick."""
_SQUEEZED_SHARE = 0.08
_MOST_BYTES_SHARE = 0.8


class AxisKind(StrEnum):
    OFFSETS = "offsets"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Axis:
    kind: AxisKind
    offsets: tuple[int, ...]
    """Rising. Below the first and above the last, the function is constant."""
    amounts: tuple[int, ...]
    width: float
    """Of the picture, in points; the axis takes all of it."""

    @property
    def total(self) -> int:
        return self.amounts[-1] - self.amounts[0]

    def at(self, offset: int) -> float:
        """Points from the left edge."""
        return self._across(self._amount_of(offset))

    def ticks(self) -> list[tuple[float, str]]:
        """Round amounts and their positions, as many as fit legibly."""
        low, high = self.amounts[0], self.amounts[-1]
        widest = len(self._tick_text(high)) * _CHARACTER_POINTS + 28
        step = round_step(high - low, max(2, int(self.width / widest)), in_bytes=self.kind is AxisKind.BYTES)
        first = -(-low // step) * step
        return [(self._across(amount), self._tick_text(amount)) for amount in range(first, high + 1, step)]

    def _tick_text(self, amount: int) -> str:
        return size_text(amount) if self.kind is AxisKind.BYTES else number_text(amount)

    def _across(self, amount: int) -> float:
        return round((amount - self.amounts[0]) / self.total * self.width, 2)

    def _amount_of(self, offset: int) -> int:
        after = bisect_right(self.offsets, offset)
        if after == 0:
            return self.amounts[0]
        if after == len(self.offsets):
            return self.amounts[-1]
        low, high = self.offsets[after - 1], self.offsets[after]
        return self.amounts[after - 1] + (self.amounts[after] - self.amounts[after - 1]) * (offset - low) // (
            high - low
        )


def axis_for(facts: PartitionFacts, kind: AxisKind, width: float) -> Axis:
    if kind is AxisKind.BYTES and facts.segments:
        axis = _bytes_axis(facts.segments, width)
        # Without a byte, or without an offset that a byte belongs to, there is nothing to lay out.
        if axis.total > 0:
            return axis
    known = [facts.start_offset, facts.end_offset, *(segment.base_offset for segment in facts.segments[:1])]
    low, high = min(known), max(known)
    return Axis(AxisKind.OFFSETS, (low, max(high, low + 1)), (low, max(high, low + 1)), width)


def _bytes_axis(segments: Sequence[SegmentFacts], width: float) -> Axis:
    offsets: list[int] = []
    amounts: list[int] = []
    at = 0
    for segment in segments:
        for offset, amount in ((segment.base_offset, at), (segment.next_offset, at + segment.size_bytes)):
            if offsets and offset <= offsets[-1]:
                amounts[-1] = amount
            else:
                offsets.append(offset)
                amounts.append(amount)
        at += segment.size_bytes
    return Axis(AxisKind.BYTES, tuple(offsets), tuple(amounts), width)


def suggested_axis(facts: PartitionFacts) -> AxisKind:
    """Offsets, unless most of the bytes would fill only a small part of the picture."""
    span = facts.end_offset - min([facts.start_offset, *(segment.base_offset for segment in facts.segments[:1])])
    total = sum(segment.size_bytes for segment in facts.segments)
    if len(facts.segments) < 2 or span <= 0 or not total:
        return AxisKind.OFFSETS
    densest = sorted(facts.segments, key=_bytes_an_offset, reverse=True)
    covered = offsets = 0
    for segment in densest:
        covered += segment.size_bytes
        offsets += segment.next_offset - segment.base_offset
        if covered >= total * _MOST_BYTES_SHARE:
            break
    return AxisKind.BYTES if offsets < span * _SQUEEZED_SHARE else AxisKind.OFFSETS


def _bytes_an_offset(segment: SegmentFacts) -> float:
    return segment.size_bytes / max(segment.next_offset - segment.base_offset, 1)


def round_step(span: int, wanted: int, *, in_bytes: bool = False) -> int:
    """The smallest round step, with at most `wanted` steps in the span."""
    if in_bytes:
        step = 1
        while span // step > wanted:
            step *= 2
        return step
    power = 1
    while True:
        for digit in _STEPS:
            if span // (digit * power) <= wanted:
                return digit * power
        power *= 10
