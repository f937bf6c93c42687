"""Where compaction has taken records out of a log: offsets that no batch has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.scanning.keyed_offsets import Numbers
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import Slice


class _Batches(NamedTuple):
    first: Numbers
    last: Numbers
    counts: Numbers


def first_gap(slices: Iterable[Slice], start_offset: int) -> int:
    """The first offset from here on that the log may lack, or its end. Control records count as records.

    Inside a batch it is not known which ones are gone: then it is the first offset of the batch.
    """
    expected = start_offset
    for found in slices:
        for batches in read_slice_pieces(found, _batches):
            kept = batches.last >= expected
            first, last, counts = (column[kept] for column in batches)
            if not len(first):
                continue
            wanted = np.concatenate([[expected], last[:-1] + 1])
            # Of a wrapper of old messages the count is not known, and is -1.
            gaps = np.flatnonzero((first > wanted) | (counts < last - first + 1))
            if len(gaps):
                return int(wanted[gaps[0]])
            expected = int(last[-1]) + 1
    return expected


def _batches(piece: Piece, _rows: Rows | None, _refuse: OnCorruptBatch) -> Iterator[_Batches]:
    columns = (piece.batches[name].astype(np.int64) for name in ("base_offset", "last_offset", "record_count"))
    yield _Batches(*columns)
