"""Segments as a look at their folder shows them, with their times, which are read when somebody asks, and kept."""

from __future__ import annotations

from functools import lru_cache

from duralog.console.sources.directory.folder_watch import PartitionLook, SegmentLook
from duralog.console.sources.directory.segment_look import first_batch, largest_indexed_timestamp_ms
from duralog.format.filenames import segment_stem
from duralog.format.layout import NO_TIMESTAMP

_NS_PER_MS = 1_000_000
_MOST_KEPT = 65_536


class TimedSegment:
    """What `duralog.storage.compaction.cleanable` has to know of a segment. Raises `OSError` if its files have gone."""

    __slots__ = ("_active_ms", "_folder", "_look")

    def __init__(self, folder: str, look: SegmentLook, active_ms: int | None) -> None:
        self._folder = folder
        self._look = look
        self._active_ms = active_ms
        """Of the active segment, whose index has no entry for the last records yet: the largest timestamp."""

    @property
    def base_offset(self) -> int:
        return self._look.base_offset

    @property
    def size_bytes(self) -> int:
        return self._look.size_bytes

    @property
    def largest_timestamp_ms(self) -> int:
        """Of any record; the time of the file where records have none."""
        indexed_ms = self._active_ms
        if indexed_ms is None:
            indexed_ms = _indexed_timestamp_ms(self._folder, self._look)
        return indexed_ms if indexed_ms != NO_TIMESTAMP else self._look.modified_ns // _NS_PER_MS

    @property
    def first_timestamp_ms(self) -> int | None:
        """Of the first batch, the largest; None without a batch or a timestamp."""
        timestamp_ms = _first_timestamp_ms(self._folder, self._look)
        return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def timed_segments(look: PartitionLook) -> list[TimedSegment]:
    """All segments of a partition, oldest first."""
    *closed, active = look.segments
    latest_ms = NO_TIMESTAMP if look.latest_timestamp_ms is None else look.latest_timestamp_ms
    return [
        *(TimedSegment(look.folder, segment, None) for segment in closed),
        TimedSegment(look.folder, active, latest_ms if active.size_bytes else NO_TIMESTAMP),
    ]


@lru_cache(maxsize=_MOST_KEPT)
def _indexed_timestamp_ms(folder: str, look: SegmentLook) -> int:
    return largest_indexed_timestamp_ms(f"{folder}/{segment_stem(look.base_offset)}.timeindex")


@lru_cache(maxsize=_MOST_KEPT)
def _first_timestamp_ms(folder: str, look: SegmentLook) -> int:
    first = first_batch(f"{folder}/{segment_stem(look.base_offset)}.log") if look.size_bytes else None
    return NO_TIMESTAMP if first is None else first.max_timestamp_ms
