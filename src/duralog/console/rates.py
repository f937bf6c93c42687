"""Rates from one look to the next, and what was seen so far: bounded, however long a console runs.

A history that is full loses every second sample of its older half: it goes back further and further, the coarser the
longer ago. Of a partition only changes are kept, each with the last moment before it, so that a chart shows a step as a
step and a thousand idle partitions cost next to nothing.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from duralog.console.facts import RECENT_LOOKS, SizeSample, TopicFacts
from duralog.console.folder_watch import PartitionLook

MOST_SAMPLES = 600
_MOST_SIZES = 240
_FIELDS = 4
"""Of a sample of a partition: time, size, start and end."""

_Sample = TypeVar("_Sample")


class Growth(NamedTuple):
    """What came in between two looks."""

    records: int
    size_bytes: int


NO_GROWTH = Growth(0, 0)


def growth(before: PartitionLook, after: PartitionLook) -> Growth:
    """What was appended. What compaction or retention took away meanwhile does not count against it."""
    if before is after or not before.segments or not after.segments:
        return NO_GROWTH
    was_active = before.active
    size_bytes = sum(segment.size_bytes for segment in after.segments if segment.base_offset >= was_active.base_offset)
    return Growth(max(after.end_offset - before.end_offset, 0), max(size_bytes - was_active.size_bytes, 0))


class History(Generic[_Sample]):
    """The samples so far, oldest first."""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self._most = most
        self._samples: list[_Sample] = []

    def add(self, sample: _Sample) -> None:
        if len(self._samples) >= self._most:
            half = self._most // 2
            self._samples[:half] = self._samples[:half:2]
        self._samples.append(sample)

    def all(self) -> tuple[_Sample, ...]:
        return tuple(self._samples)


class RecentRates:
    """The last rates of each topic."""

    def __init__(self) -> None:
        self._of: dict[str, deque[float | None]] = {}

    def add(self, topics: Sequence[TopicFacts]) -> tuple[TopicFacts, ...]:
        """The topics with their last rates, these included. Those that are not among them are forgotten."""
        self._of = {topic.name: self._of.get(topic.name) or deque(maxlen=RECENT_LOOKS) for topic in topics}
        for topic in topics:
            self._of[topic.name].append(topic.records_in_per_second)
        return tuple(replace(topic, recent=tuple(self._of[topic.name])) for topic in topics)


class SizeHistory:
    """The size and the ends of one partition, in 32 bytes a sample."""

    __slots__ = ("_numbers", "_seen_ms")

    def __init__(self) -> None:
        self._numbers = array("q")
        self._seen_ms = 0
        """When it was last seen as the last sample has it."""

    def add(self, at_ms: int, size_bytes: int, start_offset: int, end_offset: int) -> None:
        values = (size_bytes, start_offset, end_offset)
        last = tuple(self._numbers[1 - _FIELDS :]) if self._numbers else None
        if last == values:
            self._seen_ms = at_ms
            return
        if last is not None and self._seen_ms > self._numbers[-_FIELDS]:
            self._append(self._seen_ms, *last)
        self._append(at_ms, *values)
        self._seen_ms = at_ms

    def _append(self, *numbers: int) -> None:
        if len(self._numbers) >= _MOST_SIZES * _FIELDS:
            half = _MOST_SIZES // 2
            kept = array("q")
            for sample in range(0, half, 2):
                kept.extend(self._numbers[sample * _FIELDS : (sample + 1) * _FIELDS])
            self._numbers[: half * _FIELDS] = kept
        self._numbers.extend(numbers)

    def all(self) -> tuple[SizeSample, ...]:
        """Oldest first, up to when it was last looked at."""
        numbers = self._numbers.tolist()
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
