"""What a reader sees of a log: one immutable value, replaced whole when the log changes.

Readers take the value that is current and need no lock: it never names bytes that are not written yet. What they hold
stays readable when the log goes on, rolls, or loses segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from duralog.errors import OffsetOutOfRange
from duralog.format.filenames import FileKind
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.isolation import Isolation
from duralog.storage.producer_state import ProducerState
from duralog.storage.segment import Segment
from duralog.storage.segments import Segments


class SegmentInfo(NamedTuple):
    """A segment as it was when somebody asked."""

    base_offset: int
    size_bytes: int
    """Of the `.log` file's contents."""
    largest_timestamp_ms: int
    """Of any record; the time of the file where records have none."""
    path: str
    """Of the `.log` file."""
    is_active: bool


class LogView(NamedTuple):
    segments: Segments
    start_offset: int
    end_offset: int
    """One above the last record's."""
    end_position: int
    """Where the active segment ends, at the end offset."""
    last_stable_offset: int

    def limit(self, isolation: Isolation) -> int:
        """Up to where a reader may read."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.end_offset

    def check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within the log, which goes from {self.start_offset} to {self.end_offset}"
            )

    def segments_from(self, offset: int) -> Iterator[tuple[Segment, int]]:
        """The segments that may hold the offset and those behind, each with its end as this view knows it."""
        active = self.segments.active
        for segment in self.segments.from_floor(offset):
            yield segment, self.end_position if segment is active else segment.size_bytes

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `start_offset` up to, not including, `end_offset`."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.from_floor(start_offset):
            of_segment = segment.transaction_index.overlapping(start_offset, end_offset)
            found += of_segment.transactions
            if of_segment.is_complete:
                break
        return found

    def infos(self) -> tuple[SegmentInfo, ...]:
        active = self.segments.active
        return tuple(
            SegmentInfo(
                segment.base_offset,
                self.end_position if segment is active else segment.size_bytes,
                segment.largest_timestamp_ms,
                segment.path(FileKind.LOG),
                segment is active,
            )
            for segment in self.segments
        )


class _UnsettledView(LogView):
    """Of a log that is only read: its last stable offset is found when somebody asks.

    That takes reading all batches since the newest snapshot of the producers, which may be the whole active segment.
    """

    read_producers: Callable[[], ProducerState]

    @property
    def last_stable_offset(self) -> int:
        return self.read_producers().last_stable_offset(self.end_offset, self.start_offset)


def unsettled_view(
    segments: Segments, start_offset: int, end_offset: int, read_producers: Callable[[], ProducerState]
) -> LogView:
    view = _UnsettledView(segments, start_offset, end_offset, segments.active.size_bytes, end_offset)
    view.read_producers = read_producers
    return view
