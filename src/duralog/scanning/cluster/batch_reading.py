"""The batches that consumers of a cluster were served, as they lie in the log files: for a copy, byte for byte.

    for found, run in read_batches(slices, on_healed=..., on_corrupt=..., on_data_loss=...):
        append(run.data)

Slices are read as records are (`healing`): what is corrupt, cut or missing in the chosen copy comes from another one.
Control batches come, too. A batch belongs to the slice that has its last offset, so each comes once. The leader epoch
lies outside of a batch's checksum: one that does not fit the history of the log counts as damage.

Not checked, since no reader of bytes needs it: whether the records of a batch with the right checksum can be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch, wrong_checksum
from duralog.columnar.runs import Rows
from duralog.scanning.cluster.healing import OnCorrupt, ReadingEvents, through_damage
from duralog.scanning.cluster.sound_slices import OnHealed, of_another_history
from duralog.scanning.offset_ranges import OnDataLoss
from duralog.scanning.part_reading import Convert
from duralog.scanning.slice_reading import read_all_pieces
from duralog.scanning.slices import Slice


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Whole batches, one after the other in a log file, with the right checksums."""

    piece: Piece
    rows: Rows
    """Which batches of the piece, without a gap. At least one."""

    @property
    def batches(self) -> NDArray[Any]:
        found: NDArray[Any] = self.piece.batches[self.rows]
        return found

    @property
    def data(self) -> memoryview:
        first, last = self.piece.batches[self.rows[0]], self.piece.batches[self.rows[-1]]
        begin = int(first["position"]) - self.piece.position
        return self.piece.data[begin : int(last["position"] + last["size"]) - self.piece.position].data


def read_batches(
    slices: Sequence[Slice], *, on_healed: OnHealed, on_corrupt: OnCorrupt, on_data_loss: OnDataLoss
) -> Iterator[tuple[Slice, BatchRun]]:
    """The batches of slices that are in the order of their offsets, each run with the slice that it is read from.

    `on_corrupt` and `on_data_loss` are called with what no copy has without damage. It is skipped.
    """
    return through_damage(slices, _read, on_healed, ReadingEvents(on_corrupt, on_data_loss))


def _read(slices: Sequence[Slice], events: ReadingEvents) -> Iterator[tuple[int, BatchRun]]:
    runs = read_all_pieces(
        slices, partial(_runs_of, events), on_corrupt=events.on_corrupt, on_data_loss=events.on_data_loss
    )
    for run in runs:
        yield int(run.piece.batches["last_offset"][run.rows[-1]]) + 1, run


def _runs_of(events: ReadingEvents, found: Slice) -> Convert[BatchRun]:
    next_offset = found.start_offset

    def runs(piece: Piece, _: Rows | None, refuse: OnCorruptBatch) -> Iterator[BatchRun]:
        # Not only the batches with records that a consumer sees.
        nonlocal next_offset
        batches = piece.batches
        is_good = batches["crc_ok"] == 1
        last = batches["last_offset"]
        is_wanted = is_good & (last >= next_offset) & (last < found.end_offset)
        if events.watch is not None:
            events.watch(found, batches)
            if found.copies is not None and of_another_history(batches[is_wanted], found.copies).any():
                events.watch.is_damaged = True
        for row in np.flatnonzero(~is_good).tolist():
            begin = int(batches["position"][row]) - piece.position
            data = piece.data[begin : begin + int(batches["size"][row])]
            refuse(wrong_checksum(batches[row], data).in_file(piece.name, int(batches["position"][row])), row)
        rows = np.flatnonzero(is_wanted)
        if len(rows):
            next_offset = int(last[rows[-1]]) + 1
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                yield BatchRun(piece, run)

    return runs
