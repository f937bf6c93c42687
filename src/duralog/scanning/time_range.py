"""Decides which records of a log can be pruned because they are too early or too late.

Too early: for some offsets, a time index has the largest timestamp up to there, also if timestamps do not rise. So
a lower bound is always safe.

Too late: no index has the earliest timestamp of a segment. But if the log itself sets timestamps, they rise, unless a
clock was set back. So an upper bound counts only for topics with log append time, and leaves out the segments whose
first batch has such a time, an hour or more too late. This is the only reason for planning to read from a log: one
header of each segment that may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config import TopicConfig
from duralog.format.layout import BATCH_V2, LOG_APPEND_TIME_BIT, MAGIC_POSITION, NO_TIMESTAMP
from duralog.storage.segment.segment import Segment

LARGEST_CLOCK_ERROR_MS = 3_600_000

_LOG_APPEND_TIME = "LogAppendTime"
_BEHIND_ALL = 2**63
_WORTH_CUTTING_BYTES = 256 << 10
"""A smaller segment is read whole: to look up where a time begins in it would take longer."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The requested time range; None for an open bound."""

    not_before_ms: int | None = None
    before_ms: int | None = None

    def narrowed(self, other: TimeRange) -> TimeRange:
        """The times that are in both."""
        starts = [each for each in (self.not_before_ms, other.not_before_ms) if each is not None]
        ends = [each for each in (self.before_ms, other.before_ms) if each is not None]
        return TimeRange(max(starts, default=None), min(ends, default=None))

    def within(self, config: TopicConfig) -> TimeRange:
        """The part of the range that can prune records of a topic with this config."""
        return self if config.message_timestamp_type == _LOG_APPEND_TIME else TimeRange(self.not_before_ms)

    def first_offset(self, segment: Segment) -> int:
        """An offset below which no record of the segment is late enough; above all offsets if none is."""
        if self.not_before_ms is None:
            return segment.base_offset
        largest_ms = segment.max_timestamp_ms
        if largest_ms == NO_TIMESTAMP:
            # There may be timestamps that the index lacks.
            return segment.base_offset
        if largest_ms < self.not_before_ms:
            return _BEHIND_ALL
        if segment.size_bytes < _WORTH_CUTTING_BYTES:
            return segment.base_offset
        entry = segment.time_index.lookup(self.not_before_ms - 1)
        return segment.base_offset if entry.timestamp_ms == NO_TIMESTAMP else entry.offset + 1

    def is_before(self, segment: Segment) -> bool:
        """Whether the range ends before the segment begins."""
        if self.before_ms is None or segment.size_bytes < BATCH_V2.size:
            return False
        header = segment.file.read(0, BATCH_V2.size)
        segment.let_go()
        if header[MAGIC_POSITION] != 2:
            return False
        attributes = int.from_bytes(header[BATCH_V2.at.attributes : BATCH_V2.at.last_offset_delta])
        largest_ms = int.from_bytes(header[BATCH_V2.at.max_timestamp : BATCH_V2.at.producer_id], signed=True)
        return bool(attributes & LOG_APPEND_TIME_BIT) and largest_ms >= self.before_ms + LARGEST_CLOCK_ERROR_MS


ANY_TIME = TimeRange()
