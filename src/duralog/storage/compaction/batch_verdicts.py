"""What becomes of each batch as a whole in the second pass of a compaction.

Which records of a batch survive is decided record by record elsewhere. Here it is decided by the headers: whether the
batch goes with all its records, stays as it is, or keeps its header even if it loses all its records. Two kinds of
headers are kept: that of each active producer's last batch, for its sequence number, and that of the last batch of the
compacted part, for its end offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.compacting import BatchVerdict
from duralog.columnar.pieces import Piece
from duralog.format.index_entries import AbortedTransaction
from duralog.format.layout import DELETE_HORIZON_BIT, NO_PRODUCER_ID
from duralog.format.producer_snapshot import ProducerEntry
from duralog.storage.compaction.transaction_cleaning import TransactionTracker

# As plain numbers, which numpy takes without asking an enum.
_DROP, _FILTER, _FILTER_KEEP_EMPTY, _EMPTY, _CONTROL, _CONTROL_EMPTIED = (
    verdict.value
    for verdict in (
        BatchVerdict.DROP,
        BatchVerdict.FILTER,
        BatchVerdict.FILTER_KEEP_EMPTY,
        BatchVerdict.EMPTY,
        BatchVerdict.CONTROL,
        BatchVerdict.CONTROL_EMPTIED,
    )
)


class Judgement(NamedTuple):
    verdicts: NDArray[np.int8]
    """A `BatchVerdict` for each batch of the piece."""
    kept_aborts: list[AbortedTransaction]
    """What belongs into the transaction index of the new segment."""
    aborted_records: int
    """In batches that go, or are emptied, because their transaction was aborted."""


class BatchJudge:
    """Judges the batches of a log from the first to the last, and passes each on to `tracker`."""

    def __init__(
        self, tracker: TransactionTracker, producers: Sequence[ProducerEntry], *, end: int, round_ms: int
    ) -> None:
        """`end` is the first offset that may not be compacted."""
        self.tracker = tracker
        self._end = end
        self._round_ms = round_ms
        ordered = sorted(producers, key=lambda producer: producer.producer_id)
        self._producer_ids = np.array([producer.producer_id for producer in ordered], np.int64)
        self._last_offsets = np.array([producer.last_offset for producer in ordered], np.int64)
        self._epochs = np.array([producer.producer_epoch for producer in ordered], np.int16)

    def judge(self, piece: Piece) -> Judgement:
        rows = piece.batches
        tracked = self.tracker.take(piece)
        verdicts = np.full(len(rows), _FILTER, np.int8)
        keeps_header = self._is_last_of_producer(rows, None if tracked is None else tracked.is_control)
        # Offsets rise, so only the last batch can be the one before the end.
        if len(rows) and rows["last_offset"][-1] + 1 == self._end:
            keeps_header = np.zeros(len(rows), np.bool_) if keeps_header is None else keeps_header
            keeps_header[-1] = True
        if keeps_header is not None:
            verdicts[keeps_header] = _FILTER_KEEP_EMPTY
        if tracked is None:
            return Judgement(verdicts, [], 0)

        emptied = np.full(len(rows), _DROP, np.int8)
        if keeps_header is not None:
            emptied[keeps_header] = _EMPTY
        is_control = tracked.is_control
        is_aborted = tracked.may_go & ~is_control
        has_expired = (rows["attributes"] & DELETE_HORIZON_BIT != 0) & (rows["base_timestamp"] <= self._round_ms)
        is_spent = is_control & ((tracked.may_go & has_expired) | (rows["record_count"] == 0))
        verdicts[is_control] = _CONTROL
        verdicts[is_control & tracked.may_go] = _CONTROL_EMPTIED
        goes = is_aborted | is_spent
        verdicts[goes] = emptied[goes]
        aborted_records = int(rows["record_count"][is_aborted].clip(0).sum(dtype=np.int64))
        return Judgement(verdicts, tracked.kept_aborts, aborted_records)

    def _is_last_of_producer(
        self, rows: NDArray[Any], is_control: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_] | None:
        """Which batches hold the state of an active producer; None if none does."""
        known = self._producer_ids
        producer_ids = rows["producer_id"]
        if not len(known) or not (producer_ids > NO_PRODUCER_ID).any():
            return None
        places = np.searchsorted(known, producer_ids).clip(max=len(known) - 1)
        last_offsets = self._last_offsets[places]
        is_last = rows["last_offset"] == last_offsets
        if is_control is not None:
            # A producer of which only a marker is left: the marker has its epoch.
            is_last |= (last_offsets < 0) & is_control & (rows["producer_epoch"] == self._epochs[places])
        is_last &= (known[places] == producer_ids) & (producer_ids > NO_PRODUCER_ID)
        return is_last if is_last.any() else None
