"""What later batches of a log need to know of a segment's transactions, and no more.

The second pass of a compaction judges markers by what came before them in the log (`TransactionTracker`). When groups
of segments are rewritten by different tasks, each needs a tracker that has come to the start of its group. So the
reader of a segment picks the few batches that bring a tracker into the same state as all batches of the segment, and
the driver replays just these:

- of each producer the last marker that ends a transaction, and of the data after it the first and the last batch. All
  before the marker is settled by it. The first shows that the transaction has data, and the last which one that is, if
  a marker between them is damaged.
- the last damage: from there on a producer is unknown until its next marker.

The batches are real ones, with their rows and, of markers, their bytes. So it is the tracker itself that judges them.
There are a few for each producer, even in a long segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.format.control_records import ControlType
from duralog.format.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.compaction.transaction_cleaning import TransactionTracker, control_type_of

_SPECIAL_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
_ENDS = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(slots=True)
class _Kept:
    number: int
    """Its place in the segment."""
    row: NDArray[Any]
    data: bytes = b""
    """Of a marker."""


@dataclass(slots=True)
class _OfProducer:
    marker: _Kept | None = None
    first: _Kept | None = None
    last: _Kept | None = None


@dataclass(slots=True)
class TransactionExtract:
    """Gets all batches of a segment in order; `piece` then has those that matter."""

    _count: int = 0
    _producers: dict[int, _OfProducer] = field(default_factory=dict)
    _damage: _Kept | None = None

    def take(self, piece: Piece) -> None:
        """REQUIRES: the checksums were computed."""
        rows = piece.batches
        is_special = (rows["attributes"] & _SPECIAL_BITS != 0) & (rows["magic"] == 2) | (rows["crc_ok"] == 0)
        for place in np.flatnonzero(is_special).tolist():
            self._count += 1
            self._take(piece, rows[place : place + 1].copy())

    def _take(self, piece: Piece, row: NDArray[Any]) -> None:
        attributes, producer_id = int(row["attributes"][0]), int(row["producer_id"][0])
        kept = _Kept(self._count, row)
        if row["crc_ok"][0] == 0:
            self._damage = kept
        elif not attributes & CONTROL_BIT:
            found = self._producers.setdefault(producer_id, _OfProducer())
            found.first = found.first or kept
            found.last = kept
        elif row["record_count"][0]:
            begin, size = int(row["position"][0]) - piece.position, int(row["size"][0])
            kept.data = piece.data[begin : begin + size].tobytes()
            control_type = control_type_of(piece.data, begin, size, attributes)
            if control_type is None:
                self._damage = kept
            elif control_type in _ENDS:
                self._producers[producer_id] = _OfProducer(marker=kept)

    def piece(self, name: str) -> Piece | None:
        """The batches that matter, as if they were all of the segment; None if there are none."""
        found = {self._damage.number: self._damage} if self._damage is not None else {}
        for producer in self._producers.values():
            for kept in (producer.marker, producer.first, producer.last):
                if kept is not None:
                    found[kept.number] = kept
        if not found:
            return None
        ordered = [found[number] for number in sorted(found)]
        rows = np.concatenate([kept.row for kept in ordered]).astype(BATCH_DTYPE, copy=False)
        sizes = np.array([len(kept.data) for kept in ordered], np.int64)
        rows["position"] = np.cumsum(sizes) - sizes
        data = np.frombuffer(b"".join(kept.data for kept in ordered), np.uint8)
        return Piece(name=name, position=0, data=data, batches=rows)


def replay(tracker: TransactionTracker, extract: Piece | None, *, is_left: bool) -> None:
    """Bring the tracker to the end of the segment, which stays as it is or not."""
    if extract is not None:
        if is_left:
            # The checksums of a segment that stays are not used.
            sound = extract.batches["crc_ok"] != 0
            extract = Piece(name=extract.name, position=0, data=extract.data, batches=extract.batches[sound])
        tracker.take(extract)
    if is_left:
        tracker.lose_sight()
