"""The end of a micro-batch with a limit in bytes: by the sparse indexes, without reading the logs.

An index has an entry every few kilobytes, so the end is exact to a few kilobytes, and always at the end of a batch.
Each partition gets a share in proportion to its new bytes; a partition with new records gets some, so that none waits
for ever and every trigger makes progress.
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import Logs
from duralog.spark.source.stream_offsets import Positions
from duralog.storage.log.view import LogView


def within_bytes(
    logs: Logs, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most_bytes: int
) -> Positions:
    """An end about `most_bytes` of log files away, or the end itself."""
    views = {partition: logs.log(partition).view for partition in end if end[partition] > start[partition]}
    sizes = {partition: _bytes_between(view, start[partition], end[partition]) for partition, view in views.items()}
    total = sum(sizes.values())
    if total <= most_bytes:
        return dict(end)
    limited = dict(end)
    for partition, view in views.items():
        share = most_bytes * sizes[partition] // total
        limited[partition] = min(end[partition], _offset_after(view, start[partition], share))
    return limited


def _bytes_between(view: LogView, start_offset: int, end_offset: int) -> int:
    total = 0
    for segment, end in view.segments_from(start_offset):
        if segment.base_offset >= end_offset:
            break
        index = segment.offset_index
        first = index.lookup(start_offset).position if start_offset > segment.base_offset else 0
        behind = index.upper_bound_by_position(index.lookup(end_offset).position + 1)
        total += max((end if behind is None else min(behind.position, end)) - first, 0)
    return total


def _offset_after(view: LogView, start_offset: int, size_bytes: int) -> int:
    """The offset after a batch about `size_bytes` after the start, and at least one batch after it."""
    left = size_bytes
    for segment, end in view.segments_from(start_offset):
        index = segment.offset_index
        first = index.lookup(start_offset).position if start_offset > segment.base_offset else 0
        if end - first > left:
            entry = index.upper_bound_by_position(first + left + 1)
            if entry is not None:
                return entry.offset + 1
            following = view.segments.after(segment)
            return view.end_offset if following is None else following.base_offset
        left -= end - first
    return view.end_offset
