"""Which transactional batches compaction may drop: the data of aborted transactions, and markers that end nothing.

A pass over a log passes every batch, from the first to the last, to the tracker. Data of an aborted transaction can go
at once. A marker can go if the pass found no data of its transaction before it; until then readers need it, and if an
abort marker stays, the segment needs its entry in the transaction index.

What must always be true: a batch counts as aborted only if it is between the first offset and the marker of an aborted
transaction of its producer, wherever the pass begins. Kafka uses only the markers that it reads: a first pass that
begins after one takes committed data for aborted. If that is a tombstone, it is not mapped, and when it expires it goes
without the values that it has deleted.

A damaged batch could be anything: from there on, each producer's next marker is kept, since its data may be in the
damaged batch.

In Kafka: `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord
from duralog.format import record_batch
from duralog.format.control_records import ControlType
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import BATCH_V2, CONTROL_BIT, CONTROL_KEY, TRANSACTIONAL_BIT
from duralog.storage.segment.source import check_crc

_SPECIAL_BITS = CONTROL_BIT | TRANSACTIONAL_BIT
_CODEC_BITS = 0x07
_COLUMNS = ["attributes", "crc_ok", "producer_id", "base_offset", "last_offset", "record_count", "position", "size"]

_SHORT_PREFIX = 5
"""Of a marker as Kafka writes it: length, attributes, no timestamp delta, offset delta 0, key length, a byte each."""
_SHORT_FIELDS = (0, 0, 0, 2 * CONTROL_KEY.size)
"""All of these but the length."""


class TrackedBatches(NamedTuple):
    """What is known of the batches of a piece."""

    is_control: NDArray[np.bool_]
    may_go: NDArray[np.bool_]
    """Data of aborted transactions, and markers of transactions that have no data left."""
    kept_aborts: list[AbortedTransaction]
    """The transactions whose abort marker stays, in the order of their markers."""


class TransactionTracker:
    """The transactions of one pass over a log. Not safe for several threads."""

    def __init__(self) -> None:
        self._expected: list[tuple[int, int, AbortedTransaction]] = []
        """A heap by the first offset: aborted transactions that the pass has not reached."""
        self._count = 0
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer: the aborted transaction that the pass is in."""
        self._has_data: set[int] = set()
        """The producers of `_aborted` whose data was found."""
        self._committed: set[int] = set()
        """Producers with data outside of aborted transactions, and no marker since."""
        self._known: set[int] | None = None
        """Producers with a marker since the last damage; None without damage."""

    def copy(self) -> TransactionTracker:
        """The state as it is now, to come back to."""
        same = TransactionTracker()
        same._expected = list(self._expected)
        same._count = self._count
        same._aborted = dict(self._aborted)
        same._has_data = set(self._has_data)
        same._committed = set(self._committed)
        same._known = None if self._known is None else set(self._known)
        return same

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that the next batches may be part of. One may be added several times."""
        for transaction in transactions:
            self._count += 1
            heappush(self._expected, (transaction.first_offset, self._count, transaction))

    def lose_sight(self) -> None:
        """There were batches here that could not be read."""
        self._known = set()

    def take(self, piece: Piece, *, has_checksums: bool = True) -> TrackedBatches | None:
        """Track the next batches. None if they are all ordinary: no control batches, and none of a transaction.

        Without `has_checksums`, checksums are computed if a batch is not ordinary.
        """
        rows = piece.batches
        is_special = (rows["attributes"] & _SPECIAL_BITS != 0) & (rows["magic"] == 2)
        if not has_checksums and is_special.any():
            check_crc(piece)
        is_special |= rows["crc_ok"] == 0
        chosen = np.flatnonzero(is_special)
        if not len(chosen):
            return None
        is_control = np.zeros(len(rows), np.bool_)
        may_go = np.zeros(len(rows), np.bool_)
        kept_aborts: list[AbortedTransaction] = []
        for row, batch in zip(chosen.tolist(), rows[chosen][_COLUMNS].tolist(), strict=True):
            attributes, crc_ok, producer_id, base_offset, last_offset, record_count, position, size = batch
            if crc_ok == 0:
                self.lose_sight()
            elif attributes & CONTROL_BIT:
                is_control[row] = True
                begin = position - piece.position
                if record_count == 0:
                    may_go[row] = True
                else:
                    control_type = control_type_of(piece.data, begin, size, attributes)
                    may_go[row], kept = self._take_marker(producer_id, last_offset, control_type)
                    if kept is not None:
                        kept_aborts.append(kept)
            else:
                may_go[row] = self._take_data(producer_id, base_offset, last_offset)
        return TrackedBatches(is_control, may_go, kept_aborts)

    def _take_data(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        self._begin_aborted(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is not None and base_offset > aborted.last_offset:
            # Its marker was not found: it is damaged, or before the start of the pass.
            del self._aborted[producer_id]
            self._has_data.discard(producer_id)
            aborted = None
        if aborted is None:
            self._committed.add(producer_id)
            return False
        self._has_data.add(producer_id)
        return True

    def _take_marker(
        self, producer_id: int, last_offset: int, control_type: int | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Whether the marker may go, and the entry for the transaction index if it stays and needs one."""
        self._begin_aborted(last_offset)
        if control_type is None:
            self.lose_sight()
            return False, None
        is_uncertain = self._known is not None and producer_id not in self._known
        if control_type == ControlType.ABORT:
            transaction = self._aborted.pop(producer_id, None)
            had_data = producer_id in self._has_data
            self._has_data.discard(producer_id)
            stays = transaction is not None and (had_data or is_uncertain)
            may_go, kept = not (stays or is_uncertain), transaction if stays else None
        elif control_type == ControlType.COMMIT:
            may_go, kept = producer_id not in self._committed and not is_uncertain, None
            self._committed.discard(producer_id)
        else:
            return False, None
        if self._known is not None:
            self._known.add(producer_id)
        return may_go, kept

    def _begin_aborted(self, offset: int) -> None:
        """The pass has reached this offset."""
        expected = self._expected
        while expected and expected[0][0] <= offset:
            transaction = heappop(expected)[2]
            producer_id = transaction.producer_id
            before = self._aborted.get(producer_id)
            # One that ended before this one began has a damaged marker.
            if transaction.last_offset >= offset and (before is None or before.last_offset < transaction.first_offset):
                self._aborted[producer_id] = transaction
                self._has_data.discard(producer_id)


def control_type_of(data: NDArray[np.uint8], begin: int, size: int, attributes: int) -> int | None:
    """The type in the key of the first record of data[begin:begin + size], a control batch; None if unreadable."""
    record = begin + BATCH_V2.size
    prefix = data[record + 1 : record + _SHORT_PREFIX].tolist()
    key: Any = data[record + _SHORT_PREFIX : begin + size]
    if attributes & _CODEC_BITS or tuple(prefix) != _SHORT_FIELDS:
        key = None
        with suppress(CorruptRecord):
            batch = data[begin : begin + size].data
            key = record_batch.decode_records(batch, record_batch.decode_header(batch, 0))[0].key
    if key is None or len(key) < CONTROL_KEY.size:
        return None
    version, control_type = CONTROL_KEY.unpack(key)
    return int(control_type) if version >= 0 else None
