"""What a query wants of records, as far as planning can use it: offsets between two, and times between two.

They only let partitions, segments and byte ranges be left out: who asked applies the conditions to the rows as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import OffsetRange
from duralog.scanning.time_range import TimeRange

INT64_MAX = 2**63 - 1


@dataclass(slots=True)
class RowBounds:
    """Of conditions that a row must satisfy all of: each one narrows them."""

    first_offset: int = 0
    last_offset: int = INT64_MAX - 1
    not_before_ms: int | None = None
    before_ms: int | None = None
    """No wanted row has this time or a later one."""

    @property
    def times(self) -> TimeRange:
        return TimeRange(self.not_before_ms, self.before_ms)

    def between(self, first: int, last: int) -> None:
        """Only these offsets, both included."""
        self.first_offset = max(self.first_offset, first)
        self.last_offset = min(self.last_offset, last)

    def since(self, time_ms: int) -> None:
        self.not_before_ms = time_ms if self.not_before_ms is None else max(self.not_before_ms, time_ms)

    def until(self, time_ms: int) -> None:
        """Only records before this time."""
        self.before_ms = time_ms if self.before_ms is None else min(self.before_ms, time_ms)

    def narrow(
        self, ranges: Mapping[TopicPartition, OffsetRange], wants: Callable[[TopicPartition], bool]
    ) -> dict[TopicPartition, OffsetRange]:
        """What is left of the ranges of the partitions that are wanted."""
        narrowed = {}
        for partition, (start_offset, end_offset) in ranges.items():
            if wants(partition):
                start = max(start_offset, self.first_offset)
                narrowed[partition] = OffsetRange(start, max(start, min(end_offset, self.last_offset + 1)))
        return narrowed
