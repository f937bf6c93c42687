"""Replaying a log skips nearly all of its batches. The state must be the one that all of them would give."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from duralog.errors import DuralogError
from duralog.format import control_records, record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.index_entries import AbortedTransaction
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.append.producer_batch import ProducerBatch, producer_batches
from duralog.storage.append.producer_entry import WrittenBatch
from duralog.storage.append.producer_state import ProducerState

PLAIN, TRANSACTIONAL, COMMIT, ABORT, EMPTY_CONTROL = range(5)
ATTRIBUTES = {PLAIN: 0, TRANSACTIONAL: 0x10, COMMIT: 0x30, ABORT: 0x30, EMPTY_CONTROL: 0x30}

batches = st.tuples(
    st.sampled_from([-1, 4, 5, 6]),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    st.sampled_from([PLAIN, PLAIN, PLAIN, TRANSACTIONAL, TRANSACTIONAL, TRANSACTIONAL, COMMIT, ABORT, EMPTY_CONTROL]),
    st.integers(0, 20),
)
logs = st.lists(batches, min_size=1, max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=4)


def marker_bytes(kind: int, coordinator_epoch: int) -> bytes:
    if kind == EMPTY_CONTROL:
        return record_batch.encode([], last_offset=0, is_control=True)
    marker = EndTransactionMarker(
        type=ControlType.COMMIT if kind == COMMIT else ControlType.ABORT, coordinator_epoch=coordinator_epoch
    )
    key, value = control_records.encode(marker)
    return record_batch.encode([Record(key=key, value=value)], is_control=True)


def rows_of(log: list[tuple[int, int, int, int]]) -> NDArray[Any]:
    """Each batch has two offsets. Its number is its position, and its time, which distinguishes it from the others."""
    rows = np.zeros(len(log), BATCH_DTYPE)
    producers, epochs, kinds, sequences = (list(column) for column in zip(*log, strict=True))
    rows["producer_id"] = producers
    rows["producer_epoch"] = epochs
    rows["base_sequence"] = sequences
    rows["attributes"] = [ATTRIBUTES[kind] for kind in kinds]
    rows["base_offset"] = np.arange(len(log)) * 2
    rows["last_offset"] = rows["base_offset"] + 1
    rows["position"] = rows["max_timestamp"] = np.arange(len(log))
    return rows


def seen(state: ProducerState, batch: ProducerBatch) -> WrittenBatch | type[DuralogError] | None:
    try:
        return state.check(batch)
    except DuralogError as error:
        return type(error)


@given(logs, cuts)
def test_skipping_makes_no_difference(log: list[tuple[int, int, int, int]], cuts: list[int]) -> None:
    def read(position: int, size: int) -> bytes:
        _, _, kind, sequence = log[position]
        return marker_bytes(kind, sequence)

    rows = rows_of(log)
    whole = ProducerState()
    every_batch = list(producer_batches(rows, read))
    aborted = whole.update(every_batch, int(rows["last_offset"][-1]) + 1)

    replayed = ProducerState()
    found: list[AbortedTransaction] = []
    for part in np.split(rows, sorted(min(cut, len(rows)) for cut in cuts)):
        found += replayed.replay(part, read)

    assert found == aborted
    by_producer = {entry.producer_id: entry for entry in whole.entries()}
    assert {entry.producer_id: entry for entry in replayed.entries()} == by_producer
    assert replayed.end_offset == whole.end_offset
    assert replayed.first_unstable_offset == whole.first_unstable_offset
    for batch in every_batch:
        for epoch in range(3):
            asked = batch._replace(producer_epoch=epoch)
            assert seen(replayed, asked) == seen(whole, asked)
    assert ProducerState.from_snapshot(replayed.snapshot(), 0, now_ms=0).first_unstable_offset == min(
        (entry.transaction_first_offset for entry in whole.entries() if entry.transaction_first_offset >= 0),
        default=None,
    )
