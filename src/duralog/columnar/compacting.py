"""The second pass of compaction, one piece of a log at a time: which records survive, and the new bytes.

The caller decides about each batch as a whole (`BatchVerdict`); which records of a filtered batch survive
is decided here, by the offset map of the first pass (`SurvivalRules`). The result is what a segment takes: buffers, and
a row for each batch in them.

What must always be true:
- Offsets, order, keys, values, headers and timestamps never change. A v2 batch keeps its base offset, last offset
  delta, producer fields and leader epoch, even when it loses its last record.
- A batch that keeps all its records is copied as bytes, unless it needs a delete horizon.
- A batch with a wrong checksum, or that cannot be decoded, is reported and copied as it is, with any verdict. It is
  never dropped, and never given a new checksum.

Nothing shared is changed: pieces can be compacted by several threads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.batch_rebuilder import BatchRebuilder, SurvivalRules
from duralog.columnar.filter_result import FilterResult
from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch, Refusals
from duralog.columnar.runs import Rows
from duralog.errors import CorruptRecord
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.layout import DELETE_HORIZON_BIT
from duralog.format.varint import Bytes
from duralog.kernels.offset_map import NO_MARKS
from duralog.kernels.rebuild import BatchFate, BatchVerdict, Tally, settle_batches

__all__ = ["BatchVerdict", "CompactedPiece", "SurvivalRules", "compact_piece"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPiece:
    """The compacted piece. Records of damaged batches are not counted."""

    buffers: Sequence[Bytes]
    """Slices of the piece's own bytes among them: they are valid as long as those are."""
    batches: NDArray[Any]
    """A row (`BATCH_DTYPE`) for each batch in the buffers; positions count from their first byte."""
    records_read: int
    records_kept: int
    superseded: int
    """Records that were removed because a later one has their key."""
    expired_tombstones: int
    keyless: int
    """Records that were removed because they have no key: a compacted log should have none."""
    kept_tombstones: int
    """Records without a value that stayed."""
    rebuilt_batches: int
    """Batches that stayed, but were changed."""

    @property
    def size_bytes(self) -> int:
        return int(self.batches["size"].sum(dtype=np.int64))

    @property
    def delete_horizons_ms(self) -> NDArray[np.int64]:
        """The horizons of the batches that have one, in their order."""
        has_horizon = (self.batches["attributes"] & DELETE_HORIZON_BIT != 0) & (self.batches["magic"] == 2)
        horizons: NDArray[np.int64] = self.batches["base_timestamp"][has_horizon]
        return horizons


def compact_piece(
    piece: Piece,
    verdicts: NDArray[np.int8],
    rules: SurvivalRules,
    *,
    on_corrupt: OnCorruptBatch,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> CompactedPiece:
    """Compact the batches of a piece. `verdicts` has one `BatchVerdict` for each of `piece.batches`.

    A control batch without records stays as it is, unless the verdict is to drop or to empty it. A message of format v0
    or v1 has no header to keep: without records it goes.

    REQUIRES: if the map has marks of superseded offsets, the log's offsets rise from batch to batch, and the first pass
    has read every batch with the verdict to filter it, as far as the map goes.
    """
    result = FilterResult(piece)
    batches = piece.batches
    rows = _settle_whole_batches(batches, verdicts, rules, result)

    def refuse(error: CorruptRecord, row: int) -> None:
        result.fates[row] = BatchFate.UNTOUCHED
        on_corrupt(error, row)

    rebuilder = BatchRebuilder(
        data=piece.data,
        batches=batches,
        begins=batches["position"] - piece.position,
        max_decompressed_bytes=max_decompressed_bytes,
        refusals=Refusals(piece.name, batches, refuse),
        verdicts=verdicts,
        rules=rules,
        result=result,
    )
    rebuilder.rebuild(rows)
    buffers, left = result.put_together()
    tallies = result.tallies.tolist()
    return CompactedPiece(
        buffers=buffers,
        batches=left,
        records_read=tallies[Tally.READ],
        records_kept=tallies[Tally.KEPT],
        superseded=tallies[Tally.SUPERSEDED],
        expired_tombstones=tallies[Tally.EXPIRED],
        keyless=tallies[Tally.KEYLESS],
        kept_tombstones=tallies[Tally.KEPT_TOMBSTONES],
        rebuilt_batches=result.rebuilt_batches,
    )


def _settle_whole_batches(
    batches: NDArray[Any], verdicts: NDArray[np.int8], rules: SurvivalRules, result: FilterResult
) -> Rows:
    """Settle the batches whose records need not be read. Returns the others, and the damaged ones."""
    marks = rules.offset_map.superseded or NO_MARKS
    rows = np.empty(len(batches), np.intp)
    left = settle_batches(
        *(batches, verdicts, marks.bits, marks.first_offset, marks.end_offset),
        *(result.fates, result.tallies, rows),
    )
    return rows[:left]
