"""The segments of a log in order: an immutable value. Kafka's `LogSegments`.

Readers take the current value and keep it as long as they like; adding or removing a segment replaces it. So reading,
rolling and deleting never wait for each other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from duralog.storage.segment.segment import Segment


class Segments(Sequence[Segment]):
    """Segments by rising base offset; the last one is active. A log has at least one."""

    __slots__ = ("_base_offsets", "_segments")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._base_offsets = tuple(segment.base_offset for segment in self._segments)
        if len(set(self._base_offsets)) < len(self._base_offsets):
            raise ValueError(f"two segments have the same base offset: {self._base_offsets}")

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The one that is written to."""
        return self._segments[-1]

    @property
    def inactive(self) -> tuple[Segment, ...]:
        return self._segments[:-1]

    @property
    def size_bytes(self) -> int:
        """The size of all `.log` files."""
        return sum(segment.size_bytes for segment in self._segments)

    def floor(self, offset: int) -> Segment | None:
        """The segment that would hold the offset: the last one whose base is not above it."""
        place = bisect_right(self._base_offsets, offset)
        return self._segments[place - 1] if place else None

    def higher(self, offset: int) -> Segment | None:
        """The first segment whose base is above the offset."""
        place = bisect_right(self._base_offsets, offset)
        return self._segments[place] if place < len(self._segments) else None

    def after(self, segment: Segment) -> Segment | None:
        """The segment after this one, which may have been removed."""
        return self.higher(segment.base_offset)

    def from_floor(self, offset: int) -> tuple[Segment, ...]:
        """The segment that would hold the offset, and all that follow; all of them if the offset is below the first."""
        return self._segments[max(0, bisect_right(self._base_offsets, offset) - 1) :]

    def added(self, segment: Segment) -> Segments:
        """With one more segment."""
        return Segments((*self._segments, segment))

    def removed(self, segments: Iterable[Segment]) -> Segments:
        """Without these."""
        gone = set(map(id, segments))
        return Segments(segment for segment in self._segments if id(segment) not in gone)

    def replaced(self, old: Iterable[Segment], new: Iterable[Segment]) -> Segments:
        """With new segments in place of old ones."""
        return Segments((*self.removed(old), *new))

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, place: int) -> Segment: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Segment, ...]: ...
    def __getitem__(self, place: int | slice) -> Segment | tuple[Segment, ...]:
        return self._segments[place]

    def __repr__(self) -> str:
        return f"Segments({list(self._base_offsets)})"
