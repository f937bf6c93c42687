"""Steps two and three of a shuffled compaction's first pass: digests become superseded offsets, and those become marks.

All three are described in `keys`.

Marks of a segment are bits, one for each offset that it spans, if these are small compared with the segment. A log that
was compacted often has offsets that lie far apart: then the offsets themselves are kept. So the marks of a segment
take no more than a sixteenth of its size, or a megabyte, or eight bytes for each of its records.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.key_digests import Digests
from duralog.kernels.offset_map import OffsetMap, Superseded, map_bytes_for
from duralog.spark.jobs.compaction.rows import KeyRow, KeyShuffle, RowKind, SegmentMarks, SegmentToRead
from duralog.storage.disk.file_system import FileSystem

_SHARE_LOAD = 0.75
SHARE_ROW_BYTES = 24 + int(24 / _SHARE_LOAD) + 8
"""What a digest with its offset takes while a share is judged, map and all."""
_OFFSETS_AT_ONCE = 1 << 16
_FEW_BYTES = 1 << 20
_NO_OFFSETS = np.empty(0, np.int64)


def superseded_offsets(shuffle: KeyShuffle, rows: Iterable[KeyRow]) -> Iterator[KeyRow]:
    """Of a share of all digests, which offsets are superseded. Other rows than digests are passed on."""
    held: list[KeyRow] = []
    for row in rows:
        if row.kind in (RowKind.ASKED, RowKind.NEW):
            held.append(row)
        else:
            yield row._replace(target=shuffle.mark_tasks[row.segment])
    new = sorted((row for row in held if row.kind is RowKind.NEW), key=lambda row: row.order)
    count = sum(len(row.offsets) // 8 for row in new)
    if not count:
        return
    last_offsets = OffsetMap(map_bytes_for(count, _SHARE_LOAD), _SHARE_LOAD)
    for row in new:
        # Within a run a digest is there once, and runs come in the order of their offsets: so the last one stays.
        last_offsets.put(_digests(row), _offsets(row))
    for row in held:
        offsets = _offsets(row)
        gone = offsets[offsets < last_offsets.find(_digests(row))]
        if len(gone):
            target = shuffle.mark_tasks[row.segment]
            yield KeyRow(target, row.segment, RowKind.OFFSETS, 0, b"", gone.tobytes())


def _digests(row: KeyRow) -> Digests:
    return np.frombuffer(row.digests, np.uint64).reshape(-1, 2)


def _offsets(row: KeyRow) -> NDArray[np.int64]:
    return np.frombuffer(row.offsets, np.int64)


def packed_offsets(offsets: NDArray[np.int64]) -> Iterator[tuple[RowKind, int, bytes]]:
    """Superseded offsets as they are sent, in parts: as bits if that is less, with the offset of the first one.

    REQUIRES: they rise.
    """
    for begin in range(0, len(offsets), _OFFSETS_AT_ONCE):
        part = offsets[begin : begin + _OFFSETS_AT_ONCE]
        first, last = int(part[0]), int(part[-1])
        if last - first < 64 * len(part):
            is_superseded = np.zeros(last - first + 1, np.bool_)
            is_superseded[part - first] = True
            yield RowKind.BITS, first, np.packbits(is_superseded, bitorder="little").tobytes()
        else:
            yield RowKind.OFFSETS, 0, part.tobytes()


def _unpacked(row: KeyRow) -> NDArray[np.int64]:
    if row.kind is RowKind.OFFSETS:
        return _offsets(row)
    bits = np.unpackbits(np.frombuffer(row.offsets, np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64) + row.order


def segment_marks(
    files: FileSystem, shuffle: KeyShuffle, segments: Sequence[SegmentToRead], rows: Iterable[KeyRow]
) -> list[SegmentMarks]:
    """Write the marks of the segments in the rows, to files that no other attempt writes to."""
    marks: dict[int, _Bits | _Offsets] = {}
    found: dict[int, SegmentMarks] = {}
    for row in rows:
        known = found.setdefault(row.segment, SegmentMarks(row.segment))
        if row.kind is RowKind.FINDINGS:
            known.findings = pickle.loads(row.offsets)
            continue
        segment = segments[row.segment]
        if row.segment not in marks:
            marks[row.segment] = _Bits(segment) if has_bits(segment) else _Offsets()
        marks[row.segment].add(_unpacked(row))
    for number, kept in marks.items():
        known = found[number]
        known.path = f"{shuffle.staging}/{segments[number].base_offset}-{uuid.uuid4().hex}.marks"
        known.kind = kept.kind
        files.write(known.path, kept.data(), sync=False)
    return list(found.values())


def mark_bytes(segment: SegmentToRead) -> int:
    """With a bit for each offset."""
    return (segment.next_base_offset - segment.base_offset + 7) // 8


def has_bits(segment: SegmentToRead) -> bool:
    """Whether its marks are bits. Otherwise they are offsets."""
    return mark_bytes(segment) <= max(_FEW_BYTES, segment.size_bytes // 16)


class _Bits:
    kind = RowKind.BITS

    def __init__(self, segment: SegmentToRead) -> None:
        self._first_offset = segment.base_offset
        self._bits = np.zeros(mark_bytes(segment), np.uint8)

    def add(self, offsets: NDArray[np.int64]) -> None:
        set_bits(self._bits, offsets - self._first_offset)

    def data(self) -> memoryview:
        return self._bits.data


class _Offsets:
    kind = RowKind.OFFSETS

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int64]] = []

    def add(self, offsets: NDArray[np.int64]) -> None:
        self._parts.append(offsets)

    def data(self) -> memoryview:
        return np.sort(np.concatenate(self._parts)).data.cast("B")


def set_bits(bits: NDArray[np.uint8], places: NDArray[np.int64]) -> None:
    np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))


class MarksFile:
    """The marks of a segment, to be asked for a range of offsets at a time."""

    def __init__(self, files: FileSystem, segment: SegmentToRead, marks: SegmentMarks) -> None:
        self._segment = segment
        self._bits: NDArray[np.uint8] | None = None
        self._offsets = _NO_OFFSETS
        if marks.path is not None:
            file = files.open(marks.path)
            data = file.read(0, file.size)
            file.close()
            if marks.kind is RowKind.BITS:
                self._bits = np.frombuffer(data, np.uint8)
            else:
                self._offsets = np.frombuffer(data, np.int64)

    def between(self, first_offset: int, end_offset: int) -> Superseded:
        """Marks for at least this range. Where offsets lie far apart, hardly any of the memory is touched."""
        if self._bits is not None:
            return Superseded(self._segment.base_offset, self._segment.next_base_offset, self._bits)
        bits = np.zeros((end_offset - first_offset + 7) // 8, np.uint8)
        begin, end = np.searchsorted(self._offsets, (first_offset, end_offset))
        set_bits(bits, self._offsets[begin:end] - first_offset)
        return Superseded(first_offset, end_offset, bits)
