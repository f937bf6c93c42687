"""Which segments become one: neighbours, as long as they fit a segment together.

Compaction makes segments smaller. So that a log does not end up as many tiny ones, the neighbours that fit into one
segment before they are compacted are written into one. What counts is their size before, since the result is not known
yet: log, indexes and range of offsets all have to fit. A segment that is too large by itself is a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExtent:
    """What a segment takes up."""

    base_offset: int
    last_offset: int
    """The largest that it could hold: one below the next segment, or below the end of what may be compacted."""
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(segments: Sequence[SegmentExtent], *, segment_bytes: int, index_bytes: int) -> list[int]:
    """How many segments each group has, from the first to the last. REQUIRES: base offsets rise."""
    groups: list[int] = []
    place = 0
    while place < len(segments):
        count = _fitting(segments[place:], segment_bytes, index_bytes)
        groups.append(count)
        place += count
    return groups


def _fitting(segments: Sequence[SegmentExtent], segment_bytes: int, index_bytes: int) -> int:
    """How many from the first on fit together; one at least."""
    first = segments[0]
    log, offsets, times = first.log_bytes, first.offset_index_bytes, first.time_index_bytes
    for count, segment in enumerate(segments[1:], start=1):
        log += segment.log_bytes
        offsets += segment.offset_index_bytes
        times += segment.time_index_bytes
        # An empty segment has no offset that could lie too far off. Were it held back for what it might hold, a log
        # that skips offsets would keep an empty segment for every 2^31 of them.
        is_far = segment.log_bytes > 0 and segment.last_offset - first.base_offset > _INT32_MAX
        if log > segment_bytes or offsets > index_bytes or times > index_bytes or is_far:
            return count
    return len(segments)
