"""What becomes of batches as a whole: transactions, markers, the last batches of producers, damage."""

from __future__ import annotations

from typing import Any

import pytest

from duralog.columnar.compacting import BatchVerdict
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.format import record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker, encode
from duralog.format.index_entries import AbortedTransaction
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.record import Record
from duralog.storage.compaction.batch_verdicts import BatchJudge
from duralog.storage.compaction.transaction_cleaning import TransactionTracker

DROP, FILTER, KEEP_EMPTY = BatchVerdict.DROP, BatchVerdict.FILTER, BatchVerdict.FILTER_KEEP_EMPTY
EMPTY, CONTROL, EMPTIED = BatchVerdict.EMPTY, BatchVerdict.CONTROL, BatchVerdict.CONTROL_EMPTIED
ROUND_MS = 10_000
NO_END = 1 << 60


def data(offset: int, producer_id: int = -1, *, transactional: bool = True, count: int = 1, **fields: Any) -> bytes:
    records = [Record(key=b"k", value=b"v", timestamp_ms=1, offset=offset + place) for place in range(count)]
    if producer_id < 0:
        return record_batch.encode(records, base_offset=offset, **fields)
    return record_batch.encode(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=transactional,
        **fields,
    )


def marker(
    offset: int, producer_id: int, kind: ControlType, *, epoch: int = 0, delete_horizon_ms: int | None = None
) -> bytes:
    key, value = encode(EndTransactionMarker(type=kind, coordinator_epoch=0))
    return record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=5, offset=offset)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
        delete_horizon_ms=delete_horizon_ms,
    )


def commit(offset: int, producer_id: int, **options: Any) -> bytes:
    return marker(offset, producer_id, ControlType.COMMIT, **options)


def abort(offset: int, producer_id: int, **options: Any) -> bytes:
    return marker(offset, producer_id, ControlType.ABORT, **options)


def emptied(offset: int, producer_id: int, *, control: bool) -> bytes:
    return record_batch.encode(
        [],
        base_offset=offset,
        last_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=control,
    )


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def piece_of(*batches: bytes) -> Piece:
    (piece,) = read_pieces(MemorySource(b"".join(batches)))
    return piece


def aborted(producer_id: int, first_offset: int, last_offset: int) -> AbortedTransaction:
    return AbortedTransaction(
        producer_id=producer_id,
        first_offset=first_offset,
        last_offset=last_offset,
        last_stable_offset=last_offset + 1,
    )


def producer(producer_id: int, last_offset: int, epoch: int = 0) -> ProducerEntry:
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=0 if last_offset >= 0 else -1,
        last_offset=last_offset,
        offset_delta=0,
        timestamp_ms=1,
        coordinator_epoch=0,
        transaction_first_offset=-1,
    )


class Pass:
    def __init__(self, *transactions: AbortedTransaction, producers: Any = (), end: int = NO_END) -> None:
        self.tracker = TransactionTracker()
        self.tracker.expect(transactions)
        self.judge = BatchJudge(self.tracker, producers, end=end, round_ms=ROUND_MS)
        self.kept: list[AbortedTransaction] = []
        self.aborted_records = 0

    def verdicts(self, *batches: bytes) -> list[BatchVerdict]:
        verdicts, kept, records = self.judge.judge(piece_of(*batches))
        self.kept += kept
        self.aborted_records += records
        return [BatchVerdict(verdict) for verdict in verdicts]


def test_ordinary_batches_are_filtered() -> None:
    assert Pass().verdicts(data(0), data(1, 7, transactional=False), data(2)) == [FILTER] * 3


def test_the_last_batch_before_the_end_keeps_its_header() -> None:
    assert Pass(end=4).verdicts(data(0), data(1), data(2, count=2)) == [FILTER, FILTER, KEEP_EMPTY]
    assert Pass(end=5).verdicts(data(0), data(2, count=2)) == [FILTER, FILTER]


def test_aborted_data_goes_and_its_marker_stays_for_this_pass() -> None:
    found = Pass(aborted(7, 1, 5))
    assert found.verdicts(data(0, 8), data(1, 7, count=2), data(3), data(4, 7), abort(5, 7), data(6, 7)) == [
        *(FILTER, DROP, FILTER, DROP, CONTROL, FILTER)
    ]
    assert found.kept == [aborted(7, 1, 5)]
    assert found.aborted_records == 3


def test_an_abort_marker_without_data_left_gets_a_horizon_and_goes_when_it_has_passed() -> None:
    found = Pass(aborted(9, 7, 8))
    assert found.verdicts(
        abort(1, 7),
        abort(2, 7, delete_horizon_ms=ROUND_MS + 1),
        abort(3, 7, delete_horizon_ms=ROUND_MS),
        abort(8, 9),
    ) == [EMPTIED, EMPTIED, DROP, EMPTIED]
    assert found.kept == []


def test_a_commit_marker_stays_as_long_as_there_is_data() -> None:
    assert Pass().verdicts(
        data(0, 7), commit(1, 7, delete_horizon_ms=1), commit(2, 7), commit(3, 8, delete_horizon_ms=ROUND_MS)
    ) == [FILTER, CONTROL, EMPTIED, DROP]


def test_an_emptied_data_batch_counts_as_data_of_its_transaction() -> None:
    assert Pass().verdicts(emptied(0, 7, control=False), commit(1, 7)) == [FILTER, CONTROL]


def test_an_emptied_marker_is_removed_unless_it_is_needed() -> None:
    assert Pass().verdicts(emptied(0, 7, control=True)) == [DROP]
    assert Pass(end=1).verdicts(emptied(0, 7, control=True)) == [EMPTY]


def test_other_control_records_stay() -> None:
    leader_change = record_batch.encode(
        [Record(key=b"\0\0\0\2", value=b"\0\0", timestamp_ms=1)], base_offset=0, is_control=True
    )
    assert Pass().verdicts(leader_change) == [CONTROL]


def test_transactions_continue_from_piece_to_piece_and_may_be_added_again() -> None:
    found = Pass(aborted(7, 0, 9))
    assert found.verdicts(data(0, 7), data(1, 8)) == [DROP, FILTER]
    found.tracker.expect([aborted(7, 0, 9)])
    assert found.verdicts(data(5, 7), commit(6, 8), abort(9, 7), data(10, 7)) == [DROP, CONTROL, CONTROL, FILTER]
    assert found.kept == [aborted(7, 0, 9)]


def test_the_last_data_batch_of_an_active_producer_keeps_its_header() -> None:
    found = Pass(aborted(8, 3, 9), producers=[producer(7, 2), producer(8, 4), producer(6, 100)])
    assert found.verdicts(
        data(0, 6, transactional=False),
        data(1, 7, transactional=False, count=2),
        data(3, 8),
        data(4, 8),
        data(5, 9),
    ) == [FILTER, KEEP_EMPTY, DROP, EMPTY, FILTER]


def test_a_marker_that_is_all_there_is_of_a_producer_keeps_its_header() -> None:
    producers = [producer(7, -1, epoch=3)]
    assert Pass(producers=producers).verdicts(
        commit(0, 7, epoch=2, delete_horizon_ms=1),
        commit(1, 7, epoch=3, delete_horizon_ms=1),
        commit(2, 8, epoch=3, delete_horizon_ms=1),
    ) == [DROP, EMPTY, DROP]
    # Of a producer with data, markers tell nothing.
    assert Pass(producers=[producer(7, 50)]).verdicts(commit(0, 7, delete_horizon_ms=1)) == [DROP]


def test_after_damage_each_producers_next_marker_stays() -> None:
    found = Pass()
    assert found.verdicts(
        damaged(data(0, 7)),
        commit(1, 7, delete_horizon_ms=1),
        commit(2, 7, delete_horizon_ms=1),
        abort(3, 8, delete_horizon_ms=1),
        abort(4, 8, delete_horizon_ms=1),
    ) == [FILTER, CONTROL, DROP, CONTROL, DROP]


def test_after_damage_an_abort_marker_that_stays_keeps_its_entry() -> None:
    found = Pass(aborted(7, 0, 2))
    assert found.verdicts(damaged(data(0, 7)), abort(2, 7)) == [FILTER, CONTROL]
    assert found.kept == [aborted(7, 0, 2)]


def test_a_damaged_abort_marker_does_not_make_later_data_go() -> None:
    found = Pass(aborted(7, 0, 2))
    assert found.verdicts(data(0, 7), damaged(abort(2, 7)), data(3, 7), commit(4, 7)) == [DROP, FILTER, FILTER, CONTROL]


def test_a_damaged_abort_marker_does_not_make_the_next_aborted_transaction_count() -> None:
    found = Pass(aborted(7, 0, 2), aborted(7, 3, 4))
    batches = data(0, 7), damaged(abort(2, 7)), data(3, 7), abort(4, 7), data(5, 7)
    assert found.verdicts(*batches) == [DROP, FILTER, DROP, CONTROL, FILTER]
    assert found.kept == [aborted(7, 3, 4)]


def test_an_entry_whose_marker_lies_before_the_pass_makes_nothing_go() -> None:
    assert Pass(aborted(7, 0, 2)).verdicts(data(3, 7)) == [FILTER]


def test_a_marker_that_cannot_be_read_stays() -> None:
    strange = record_batch.encode(
        [Record(key=b"\0", value=b"", timestamp_ms=1)],
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        is_control=True,
        is_transactional=True,
    )
    assert Pass().verdicts(strange, commit(1, 7, delete_horizon_ms=1)) == [CONTROL, CONTROL]


@pytest.mark.parametrize("codec_of_marker", ["plain", "with a timestamp delta"])
def test_the_type_of_a_marker_is_found_however_it_is_written(codec_of_marker: str) -> None:
    horizon_ms = None if codec_of_marker == "plain" else 1
    found = Pass(aborted(7, 0, 1))
    assert found.verdicts(data(0, 7), abort(1, 7, delete_horizon_ms=horizon_ms)) == [DROP, CONTROL]


def test_a_tracker_can_be_brought_back() -> None:
    tracker = TransactionTracker()
    tracker.expect([aborted(7, 0, 2), aborted(8, 5, 6)])
    tracker.take(piece_of(data(0, 7)))
    before = tracker.copy()
    for again in (tracker, before):
        tracked = again.take(piece_of(abort(2, 7), data(5, 8), abort(6, 8)))
        assert tracked is not None
        assert tracked.kept_aborts == [aborted(7, 0, 2), aborted(8, 5, 6)]
