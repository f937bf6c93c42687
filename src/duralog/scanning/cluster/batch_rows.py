"""The valid batches of a copy, with their place: segment after segment, damage left out.

Indexes are not used: they may be damaged, too. Of a damaged segment, every batch with a right checksum whose offsets
rise is found, as `duralog.storage.segment.damage` does it for a repair; after a broken length, the next batch is
searched by its checksum.

What must always be true: the rows of one segment of each copy are in memory at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import ByteSource, Piece, read_pieces
from duralog.errors import DuralogError
from duralog.format.filenames import FileKind
from duralog.kernels.columns import BATCH_DTYPE
from duralog.scanning.cluster.directory import Copy
from duralog.scanning.cluster.windows import ROW
from duralog.storage.segment.damage import Damage, examine, find_batches, longest_ordered

PLACED_ROW = np.dtype(
    [
        *((name, ROW[name]) for name in ROW.names or ()),
        ("position", np.int64),
        ("segment", np.int64),
        ("copy", np.int32),
        ("expected_offset", np.int64),
    ]
)
"""A batch as it is compared (`ROW`), and where it is: position, base offset of its segment, number of its copy.

The expected offset is that after the batch before it, if offsets are missing in between: they are lost or removed by a
cleaner, or the offset of the batch is wrong. Otherwise it is -1.
"""

_KEY = np.dtype((np.void, ROW.itemsize))
_SEARCHED_BYTES = 64
"""Fewer bytes than this after damage cannot hold a batch."""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes of a log file that are not a valid batch in order, and the offsets that may have been there."""

    segment: int
    start: int
    end: int
    first_offset: int
    next_offset: int | None
    """Of the batch after it in its segment; None if there is none."""
    reason: str


class SegmentRows:
    """The batches of one segment of a copy, and its damage."""

    def __init__(self, rows: NDArray[Any], damage: tuple[DamagedRange, ...], size_bytes: int) -> None:
        self.rows = rows
        self.damage = damage
        self.size_bytes = size_bytes


class CopyRows:
    """The batches of a copy, by windows of offsets. Not thread-safe."""

    def __init__(self, copy: Copy, number: int, *, is_preallocated: bool = False) -> None:
        self.copy = copy
        self.number = number
        self._is_preallocated = is_preallocated
        self._segments = list(copy.view.segments)
        self.bases = [segment.base_offset for segment in self._segments]
        self.sizes: dict[int, int] = {}
        """Of the log files that were read, by base offset, without the zeros at the end of a preallocated one."""
        self._loaded: tuple[int, SegmentRows] | None = None
        self._searched: tuple[int, SegmentRows] | None = None

    @property
    def active_base(self) -> int:
        return self.bases[-1]

    def path(self, base_offset: int) -> str:
        return self._segments[self.bases.index(base_offset)].path(FileKind.LOG)

    def segment(self, base_offset: int) -> SegmentRows:
        """REQUIRES: the copy has a segment of this base offset."""
        if self._loaded is None or self._loaded[0] != base_offset:
            self._loaded = base_offset, self._examine(bisect_right(self.bases, base_offset) - 1)
        return self._loaded[1]

    def between(self, start_offset: int, end_offset: int) -> NDArray[Any]:
        """The batches whose last offset is in a window. REQUIRES: it has no base offset of the copy but its start."""
        place = bisect_right(self.bases, start_offset) - 1
        if place < 0:
            return np.empty(0, PLACED_ROW)
        rows = self.segment(self.bases[place]).rows
        first, last = np.searchsorted(rows["last_offset"], [start_offset, end_offset])
        found: NDArray[Any] = rows[first:last]
        return found

    def pieces(self, base_offset: int, rows: NDArray[Any]) -> Iterator[Piece]:
        """The bytes of these batches of a segment; those of other batches may lie between them."""
        if not len(rows):
            return
        segment = self._segments[self.bases.index(base_offset)]
        ends = rows["position"] + rows["size"]
        breaks = np.flatnonzero(rows["position"][1:] != ends[:-1]) + 1
        try:
            for first, last in zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), len(rows) - 1], strict=True):
                yield from read_pieces(segment.file, start=int(rows["position"][first]), end=int(ends[last]))
        finally:
            segment.let_go()

    def has_contents(self, row: Any) -> bool:
        """Whether the contents of another copy's batch are here, among the offsets that are missing before it."""
        place = bisect_right(self.bases, row["expected_offset"]) - 1
        if place < 0:
            return False
        base = self.bases[place]
        if self._loaded is not None and self._loaded[0] == base:
            found = self._loaded[1].rows
        else:
            if self._searched is None or self._searched[0] != base:
                self._searched = base, self._examine(place)
            found = self._searched[1].rows
        first, last = np.searchsorted(found["base_offset"], [row["expected_offset"], row["base_offset"]])
        missing = found[first:last]
        return bool(((missing["size"] == row["size"]) & (missing["crc"] == row["crc"])).any())

    def size_at(self, offset: int) -> int:
        """The bytes of the segment that would hold an offset."""
        place = bisect_right(self.bases, offset) - 1
        return 0 if place < 0 else self._segments[place].size_bytes

    def _examine(self, place: int) -> SegmentRows:
        segment = self._segments[place]
        following = self.bases[place + 1] if place + 1 < len(self.bases) else None
        base, size = segment.base_offset, segment.size_bytes
        try:
            file = segment.file
            self.sizes[base] = size = file.size if following is None else size
            batches, damages = _valid(file, base, size, following)
            if following is None and self._is_preallocated and damages and _is_blank(file, damages[-1]):
                self.sizes[base] = size = damages.pop().start
        except DuralogError as error:
            self.sizes[base] = size
            unread = DamagedRange(base, 0, size, base, None, str(error))
            return SegmentRows(np.empty(0, PLACED_ROW), (unread,), size)
        finally:
            segment.let_go()
        rows = np.empty(len(batches), PLACED_ROW)
        for name in (*(ROW.names or ()), "position"):
            rows[name] = batches[name]
        rows["segment"] = base
        rows["copy"] = self.number
        rows["expected_offset"] = _expected_offsets(base, rows)
        return SegmentRows(rows, tuple(_located(base, rows, each) for each in damages), size)


def keys(rows: NDArray[Any]) -> NDArray[Any]:
    """What is compared of batches, as values that are equal or not."""
    plain = np.empty(len(rows), ROW)
    for name in ROW.names or ():
        plain[name] = rows[name]
    return plain.view(_KEY)


def _expected_offsets(base: int, rows: NDArray[Any]) -> NDArray[Any]:
    expected = np.concatenate(([base], rows["last_offset"] + 1))[:-1]
    return np.where((rows["magic"] == 2) & (rows["base_offset"] > expected), expected, -1)


def _valid(file: ByteSource, base: int, size: int, limit: int | None) -> tuple[NDArray[Any], list[Damage]]:
    """Valid batches in order, and the bytes that are not."""
    examined = examine(file, base_offset=base, end=size, limit_offset=limit, skip_broken=True)
    damages = list(examined.damages)
    if not damages or damages[-1].end < size or size - damages[-1].start < _SEARCHED_BYTES:
        return examined.kept, damages
    # The length of a batch is broken: what follows it is searched by checksums.
    lost = damages[-1]
    found = [rows.copy() for rows in find_batches(_Part(file, lost.start, size))]
    for rows in found:
        rows["position"] += lost.start
    batches = np.concatenate([examined.kept, *found]) if found else examined.kept
    kept = batches[longest_ordered(batches, base, limit)]
    if len(kept) <= len(examined.kept):
        return examined.kept, damages
    reasons = {damage.start: damage.reason for damage in damages}
    bounds = np.concatenate(([0], kept["position"] + kept["size"]))
    following = np.concatenate((kept["position"], [size]))
    return kept, [
        Damage(int(start), int(end), reasons.get(int(start), lost.reason))
        for start, end in zip(bounds, following, strict=True)
        if start < end
    ]


class _Part:
    """The end of a file."""

    def __init__(self, file: ByteSource, start: int, end: int) -> None:
        self._file = file
        self._start = start
        self.size = end - start
        self.name = file.name

    def read(self, position: int, size: int) -> Any:
        return self._file.read(self._start + position, size)


def _located(base: int, rows: NDArray[Any], damage: Damage) -> DamagedRange:
    after = int(np.searchsorted(rows["position"], damage.start))
    first = int(rows["last_offset"][after - 1]) + 1 if after else base
    next_offset = int(rows["base_offset"][after]) if after < len(rows) else None
    reason = damage.reason
    detail = "" if reason.expected is None else f" (expected {reason.expected}, found {reason.found})"
    return DamagedRange(base, damage.start, damage.end, first, next_offset, f"{reason.reason}{detail}")


def _is_blank(file: ByteSource, damage: Damage) -> bool:
    step = 1 << 20
    return all(
        not any(file.read(position, min(step, damage.end - position)))
        for position in range(damage.start, damage.end, step)
    )


assert {*(ROW.names or ()), "position"} <= set(BATCH_DTYPE.names or ())
