"""The result of compacting a piece: collected batch by batch, and joined at the end.

In Kafka: `MemoryRecords.FilterResult`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.format.layout import BATCH_V2, CONTROL_BIT, LOG_APPEND_TIME_BIT, NO_TIMESTAMP, TRANSACTIONAL_BIT
from duralog.format.varint import Bytes
from duralog.kernels.columns import copy_rows, put_rows, rows_of
from duralog.kernels.encode import seal_batches
from duralog.kernels.rebuild import BatchFate, Tally

# As plain numbers, which numpy takes without asking an enum.
_DROPPED, _UNTOUCHED, _, _EMPTIED = (fate.value for fate in BatchFate)
_EMPTY_BATCH_ATTRIBUTES = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_MANY_BUFFERS = 64
_SMALL_BYTES = 4096
"""Many buffers that are small on average take longer to hand over than to join."""


class FilterResult:
    """A fate and a place for each batch of a piece. A batch without a fate is dropped."""

    def __init__(self, piece: Piece) -> None:
        self.fates = np.full(len(piece.batches), _DROPPED, np.int8)
        self.tallies = np.zeros(len(Tally), np.int64)
        self._batches = copy_rows(piece.batches)
        positions = self._batches["position"]
        positions -= piece.position
        self._buffers = [piece.data]
        self._buffer_of = np.zeros(len(piece.batches), np.intp)

    @property
    def rebuilt_batches(self) -> int:
        """The number of batches that stay, but were changed."""
        return int(np.count_nonzero(self.fates > _UNTOUCHED))

    def place(self, rows: NDArray[np.intp], batches: NDArray[Any], buffer: NDArray[np.uint8]) -> None:
        """Set the new batches of these rows, whose fate is known. They are in `buffer`, each at its `position`."""
        put_rows(self._batches, rows, batches)
        self._buffer_of[rows] = len(self._buffers)
        self._buffers.append(buffer)

    def put_together(self) -> tuple[list[Bytes], NDArray[Any]]:
        """The buffers, and a row for each batch in them, with positions from the first byte of the first one."""
        self._write_emptied()
        kept = (self.fates != _DROPPED).nonzero()[0]
        batches = rows_of(self._batches, kept)
        sizes = batches["size"].astype(np.int64)
        ends = sizes.cumsum()
        begins, buffer_of = batches["position"], self._buffer_of[kept]
        is_new_run = (buffer_of[1:] != buffer_of[:-1]) | (begins[1:] != begins[:-1] + sizes[:-1])
        edges = [0, *(is_new_run.nonzero()[0] + 1).tolist(), len(kept)] if len(kept) else []
        buffers: list[Bytes] = []
        for first, end in pairwise(edges):
            begin = int(begins[first])
            size = int(ends[end - 1] - ends[first] + sizes[first])
            buffers.append(self._buffers[buffer_of[first]].data[begin : begin + size])
        if len(buffers) > _MANY_BUFFERS and int(ends[-1]) < len(buffers) * _SMALL_BYTES:
            buffers = [b"".join(buffers)]
        batches["position"] = ends - sizes
        return buffers, batches

    def _write_emptied(self) -> None:
        """The headers of batches without records: no codec, no delete horizon, and otherwise unchanged."""
        rows = (self.fates == _EMPTIED).nonzero()[0]
        if not len(rows):
            return
        batches = rows_of(self._batches, rows)
        batches["attributes"] &= _EMPTY_BATCH_ATTRIBUTES
        batches["base_timestamp"] = NO_TIMESTAMP
        batches["record_count"] = 0
        batches["size"] = BATCH_V2.size
        batches["position"] = np.arange(len(rows)) * BATCH_V2.size
        buffer = np.empty(len(rows) * BATCH_V2.size, np.uint8)
        seal_batches(batches, buffer)
        self.place(rows, batches, buffer)
