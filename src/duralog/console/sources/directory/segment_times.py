"""The segments of a partition with their times, which are read when they are first needed, and cached."""

from __future__ import annotations

from functools import lru_cache

from duralog.format.filenames import segment_stem
from duralog.format.layout import NO_TIMESTAMP
from duralog.storage.log.read_only_tail import first_batch, largest_indexed_timestamp_ms
from duralog.storage.read_only_partitions import PartitionView, SegmentView

_NS_PER_MS = 1_000_000
_MOST_KEPT = 65_536


class TimedSegment:
    """What `duralog.storage.compaction.cleanable` has to know of a segment. Raises `OSError` if its files have gone."""

    __slots__ = ("_active_ms", "_folder", "_view")

    def __init__(self, folder: str, view: SegmentView, active_ms: int | None) -> None:
        self._folder = folder
        self._view = view
        self._active_ms = active_ms
        """Of the active segment, whose index has no entry for the last records yet: the largest timestamp."""

    @property
    def base_offset(self) -> int:
        return self._view.base_offset

    @property
    def size_bytes(self) -> int:
        return self._view.size_bytes

    @property
    def largest_timestamp_ms(self) -> int:
        """Of any record; the time of the file where records have none."""
        indexed_ms = self._active_ms
        if indexed_ms is None:
            indexed_ms = _indexed_timestamp_ms(self._folder, self._view)
        return indexed_ms if indexed_ms != NO_TIMESTAMP else self._view.modified_ns // _NS_PER_MS

    @property
    def first_timestamp_ms(self) -> int | None:
        """Of the first batch, the largest; None without a batch or a timestamp."""
        timestamp_ms = _first_timestamp_ms(self._folder, self._view)
        return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms


def timed_segments(view: PartitionView) -> list[TimedSegment]:
    """All segments of a partition, oldest first."""
    *closed, active = view.segments
    latest_ms = NO_TIMESTAMP if view.latest_timestamp_ms is None else view.latest_timestamp_ms
    return [
        *(TimedSegment(view.folder, segment, None) for segment in closed),
        TimedSegment(view.folder, active, latest_ms if active.size_bytes else NO_TIMESTAMP),
    ]


@lru_cache(maxsize=_MOST_KEPT)
def _indexed_timestamp_ms(folder: str, view: SegmentView) -> int:
    return largest_indexed_timestamp_ms(f"{folder}/{segment_stem(view.base_offset)}.timeindex")


@lru_cache(maxsize=_MOST_KEPT)
def _first_timestamp_ms(folder: str, view: SegmentView) -> int:
    first = first_batch(f"{folder}/{segment_stem(view.base_offset)}.log") if view.size_bytes else None
    return NO_TIMESTAMP if first is None else first.max_timestamp_ms
