"""Steps two and three of a shuffled compaction's first pass: digests become superseded offsets, and those become marks.

`compact_keys` tells of all three.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.key_digests import Digests
from duralog.kernels.offset_map import OffsetMap
from duralog.spark.jobs.compact_rows import KeyRow, KeyShuffle, RowKind, SegmentMarks, SegmentToRead
from duralog.storage.compaction_run import map_bytes_for
from duralog.storage.file_system import FileSystem

_SHARE_LOAD = 0.75
SHARE_ROW_BYTES = 24 + int(24 / _SHARE_LOAD) + 8
"""What a digest with its offset takes while a share is judged, map and all."""


def superseded_offsets(shuffle: KeyShuffle, rows: Iterable[KeyRow]) -> Iterator[KeyRow]:
    """Of a share of all digests, which offsets are superseded. Rows that are no digests are passed on."""
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
            yield KeyRow(target, row.segment, RowKind.SUPERSEDED, 0, b"", gone.tobytes())


def _digests(row: KeyRow) -> Digests:
    return np.frombuffer(row.digests, np.uint64).reshape(-1, 2)


def _offsets(row: KeyRow) -> NDArray[np.int64]:
    return np.frombuffer(row.offsets, np.int64)


def segment_marks(
    files: FileSystem, shuffle: KeyShuffle, segments: Sequence[SegmentToRead], attempt: str, rows: Iterable[KeyRow]
) -> list[SegmentMarks]:
    """Write the marks of those segments that the rows tell of. `attempt` is a name that no other attempt has."""
    marks: dict[int, NDArray[np.uint8]] = {}
    found: dict[int, SegmentMarks] = {}
    for row in rows:
        segment = segments[row.segment]
        known = found.setdefault(row.segment, SegmentMarks(row.segment))
        if row.kind is RowKind.FINDINGS:
            known.findings = pickle.loads(row.offsets)
            continue
        if row.segment not in marks:
            marks[row.segment] = np.zeros((segment.next_base_offset - segment.base_offset + 7) // 8, np.uint8)
        bits = marks[row.segment]
        if row.kind is RowKind.MARKS:
            bits[row.order : row.order + len(row.offsets)] |= np.frombuffer(row.offsets, np.uint8)
        else:
            places = _offsets(row) - segment.base_offset
            np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))
    for number, bits in marks.items():
        path = found[number].path = f"{shuffle.staging}/{segments[number].base_offset}-{attempt}.marks"
        files.write(path, bits.data, sync=False)
    return list(found.values())
