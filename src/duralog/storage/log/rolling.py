"""When a log rolls: before an append for which the active segment has no space or no time left."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from duralog.config import TopicConfig
from duralog.storage.segment.segment import Segment

_INT32_MAX = 2**31 - 1
LAST_OFFSET = 2**63 - 2
"""The largest offset of a record: the end of the log is one above, and must fit an int64 as well."""

RandomBelow = Callable[[int], int]
"""Returns a random number from 0 up to, not including, the given one."""


class Arrival(NamedTuple):
    """The properties of an append that decide about rolling."""

    size_bytes: int
    max_timestamp_ms: int
    last_offset: int
    now_ms: int


class FreeRange(NamedTuple):
    """Limits within which a segment need not be rolled, so that three comparisons decide most appends.

    For an append beyond them, `roll_reason` decides.
    """

    end_position: int
    max_timestamp_ms: int
    last_offset: int


NO_FREE_RANGE = FreeRange(-1, -1, -1)


def free_range(segment: Segment, config: TopicConfig, jitter_ms: int) -> FreeRange:
    first_ms = segment.first_timestamp_ms if segment.size_bytes > 0 else None
    if first_ms is None or first_ms < 0:
        return NO_FREE_RANGE
    # Entries are more than this many bytes apart. The last place of a time index is not for appends.
    interval = segment.options.index_interval_bytes
    free_entries = min(
        segment.offset_index.capacity - segment.offset_index.entry_count,
        segment.time_index.capacity - 1 - segment.time_index.entry_count,
    )
    return FreeRange(
        min(config.segment_bytes, segment.size_bytes + (free_entries - 1) * interval),
        first_ms + _longest_ms(config) - jitter_ms,
        min(segment.base_offset + _INT32_MAX, LAST_OFFSET),
    )


def roll_reason(segment: Segment, arrival: Arrival, config: TopicConfig, jitter_ms: int) -> str | None:
    """Why the segment must be rolled before the append; None if it need not.

    The age is that of records: the time between the first batch and the new ones. So an idle log does not roll, and a
    copy of a log rolls where the original did. Only if the first batch has no timestamp, the clock is used, from when
    this process opened the segment.
    """
    if segment.size_bytes > config.segment_bytes - arrival.size_bytes:
        return "size"
    if segment.size_bytes > 0:
        first_ms = segment.first_timestamp_ms
        if first_ms is None or first_ms < 0:
            waited_ms = arrival.now_ms - segment.created_ms
        else:
            waited_ms = arrival.max_timestamp_ms - first_ms
        if waited_ms > _longest_ms(config) - jitter_ms:
            return "time"
    if segment.offset_index.is_full:
        return "offset index"
    if segment.time_index.is_full:
        return "time index"
    if not 0 <= arrival.last_offset - segment.base_offset <= _INT32_MAX:
        return "offset range"
    return None


def choose_jitter_ms(config: TopicConfig, random_below: RandomBelow) -> int:
    """The random time by which a new segment rolls earlier, so that not all partitions roll at the same time."""
    most = min(config.segment_jitter_ms, config.segment_ms)
    return random_below(most) if most > 0 else 0


def _longest_ms(config: TopicConfig) -> int:
    if "compact" in config.cleanup_policy:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms
