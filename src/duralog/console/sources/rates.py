"""Rates between refreshes, and their history, bounded for any uptime.

The newer half of a history has all samples; the older half has evenly spaced samples of all the time before, which get
sparser over time. For a partition only changes are kept, each with the last moment before it, so that a chart shows a
step as a step and a thousand idle partitions cost almost nothing.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from duralog.console.facts.overview import RECENT_REFRESHES, TopicFacts
from duralog.console.facts.partitions import SizeSample
from duralog.storage.read_only_partitions import PartitionView

MOST_SAMPLES = 600
_MOST_SIZES = 240
_FIELDS = 4
"""Of a sample of a partition: time, size, start and end."""

_Sample = TypeVar("_Sample")


class Growth(NamedTuple):
    """What was appended between two refreshes."""

    records: int
    size_bytes: int


NO_GROWTH = Growth(0, 0)


def growth(before: PartitionView, after: PartitionView) -> Growth:
    """The appended bytes and records. Removals by compaction or retention are not subtracted."""
    if before is after or not before.segments or not after.segments:
        return NO_GROWTH
    was_active = before.active
    size_bytes = sum(segment.size_bytes for segment in after.segments if segment.base_offset >= was_active.base_offset)
    return Growth(max(after.end_offset - before.end_offset, 0), max(size_bytes - was_active.size_bytes, 0))


class _OlderHalf:
    """The older samples. When it is full, every second one is dropped, and from then on only half as many are added."""

    __slots__ = ("_most", "_passed", "_stride", "_width", "kept")

    def __init__(self, kept: Any, *, most: int, width: int = 1) -> None:
        """`kept` is an empty list or array, in which a sample takes `width` places. `most` is even."""
        self.kept = kept
        self._most = most
        self._width = width
        self._stride = 1
        self._passed = 0

    def add(self, sample: Any) -> None:
        """A list or array of one sample."""
        if self._passed % self._stride == 0:
            if len(self.kept) >= self._most * self._width:
                thinned = self.kept[:0]
                for at in range(0, len(self.kept), 2 * self._width):
                    thinned += self.kept[at : at + self._width]
                self.kept = thinned
                self._stride *= 2
            self.kept += sample
        self._passed += 1


class History(Generic[_Sample]):
    """The samples so far, oldest first. One thread adds; any thread may ask."""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self._half = most // 2
        self._older = _OlderHalf([], most=self._half)
        self._newer: list[_Sample] = []

    def add(self, sample: _Sample) -> None:
        if len(self._newer) >= self._half:
            self._older.add(self._newer[:1])
            del self._newer[0]
        self._newer.append(sample)

    def all(self) -> tuple[_Sample, ...]:
        return (*self._older.kept, *self._newer)


class RecentRates:
    """The last rates of each topic."""

    def __init__(self) -> None:
        self._of: dict[str, deque[float | None]] = {}

    def add(self, topics: Sequence[TopicFacts]) -> tuple[TopicFacts, ...]:
        """Add the rates of these topics. Other topics are forgotten."""
        self._of = {topic.name: self._of.get(topic.name) or deque(maxlen=RECENT_REFRESHES) for topic in topics}
        for topic in topics:
            self._of[topic.name].append(topic.records_in_per_second)
        return tuple(replace(topic, recent=tuple(self._of[topic.name])) for topic in topics)


class SizeHistory:
    """The size and the ends of one partition, in 32 bytes a sample."""

    __slots__ = ("_newer", "_older", "_seen_ms")

    def __init__(self) -> None:
        self._older = _OlderHalf(array("q"), most=_MOST_SIZES // 2, width=_FIELDS)
        self._newer = array("q")
        self._seen_ms = 0
        """The last time at which the last sample was still true."""

    def add(self, at_ms: int, size_bytes: int, start_offset: int, end_offset: int) -> None:
        values = (size_bytes, start_offset, end_offset)
        last = tuple(self._newer[1 - _FIELDS :]) if self._newer else None
        if last == values:
            self._seen_ms = at_ms
            return
        if last is not None and self._seen_ms > self._newer[-_FIELDS]:
            self._append(self._seen_ms, *last)
        self._append(at_ms, *values)
        self._seen_ms = at_ms

    def _append(self, *numbers: int) -> None:
        if len(self._newer) >= _MOST_SIZES // 2 * _FIELDS:
            self._older.add(self._newer[:_FIELDS])
            del self._newer[:_FIELDS]
        self._newer.extend(numbers)

    def all(self) -> tuple[SizeSample, ...]:
        """Oldest first, up to the last refresh."""
        numbers = [*self._older.kept.tolist(), *self._newer.tolist()]
        if numbers and self._seen_ms > numbers[-_FIELDS]:
            numbers += [self._seen_ms, *numbers[1 - _FIELDS :]]
        return tuple(
            SizeSample(
                at_ms=numbers[at],
                size_bytes=numbers[at + 1],
                start_offset=numbers[at + 2],
                end_offset=numbers[at + 3],
            )
            for at in range(0, len(numbers), _FIELDS)
        )
