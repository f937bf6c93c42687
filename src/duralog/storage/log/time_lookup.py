"""Offsets by time: the first record at or after a timestamp, and the special timestamps of ListOffsets."""

from __future__ import annotations

from duralog.format.layout import NO_TIMESTAMP
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.log.view import LogView
from duralog.storage.segment.lookup import TimestampedOffset

LATEST = -1
"""The end of the log, as far as the reader may read."""
EARLIEST = -2
"""The start of the log."""
MAX_TIMESTAMP = -3
"""The first record with the largest timestamp of all."""


def offset_for_timestamp(
    view: LogView, timestamp_ms: int, isolation: Isolation, epochs: LeaderEpochs
) -> TimestampedOffset | None:
    """The first record with this timestamp or a later one, or the offset of a special timestamp.

    None if there is no such record that the reader may see. Timestamps of producers need not rise: this is the first
    such record in the order of the log, and records after it may have earlier timestamps.
    """
    limit = view.limit(isolation)
    if timestamp_ms == LATEST:
        return TimestampedOffset(limit, NO_TIMESTAMP, epochs.latest_epoch)
    if timestamp_ms == EARLIEST:
        return TimestampedOffset(view.start_offset, NO_TIMESTAMP, epochs.epoch_for(view.start_offset))
    if timestamp_ms == MAX_TIMESTAMP:
        found = _with_max_timestamp(view)
    elif timestamp_ms >= 0:
        found = _first_reaching(view, timestamp_ms)
    else:
        raise ValueError(f"{timestamp_ms} is neither a timestamp nor one of the special values -1, -2 and -3")
    return found if found is not None and found.offset < limit else None


def _first_reaching(view: LogView, timestamp_ms: int) -> TimestampedOffset | None:
    for segment, _ in view.segments_from(view.start_offset):
        if segment.largest_timestamp_ms >= timestamp_ms:
            found = segment.find_offset_by_timestamp(timestamp_ms, view.start_offset)
            if found is not None:
                return found
    return None


def _with_max_timestamp(view: LogView) -> TimestampedOffset | None:
    largest = max(view.segments, key=lambda segment: segment.max_timestamp_ms)
    if largest.max_timestamp_ms < 0:
        return None
    return largest.find_offset_by_timestamp(largest.max_timestamp_ms, view.start_offset)
