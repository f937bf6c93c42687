"""Producers: sequence numbers, epochs, repeated batches, transactions, expiry, and the snapshot files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duralog.errors import CoordinatorFenced, CorruptRecord, InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from duralog.format import control_records, record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.index_entries import AbortedTransaction
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.scan import scan_batches
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.producer_batch import ProducerBatch, producer_batches
from duralog.storage.append.producer_entry import WrittenBatch
from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.file_system import LocalFileSystem

PRODUCER, OTHER = 7, 8
COORDINATOR = AppendOrigin.COORDINATOR
LAST_SEQUENCE = 2**31 - 1


def data(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    epoch: int = 0,
    producer: int = PRODUCER,
    transactional: bool = False,
    time: int = 1000,
) -> ProducerBatch:
    return ProducerBatch(producer, epoch, sequence, offset, offset + count - 1, time, transactional)


def marker(
    offset: int,
    *,
    epoch: int = 0,
    producer: int = PRODUCER,
    commit: bool = False,
    coordinator_epoch: int = 0,
    time: int = 2000,
) -> ProducerBatch:
    end = EndTransactionMarker(
        type=ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch=coordinator_epoch
    )
    return ProducerBatch(producer, epoch, -1, offset, offset, time, True, end)


def expire(state: ProducerState, now_ms: int) -> int:
    return state.forget(state.frozen().expired(now_ms, state.expiration_ms))


def state_of(*batches: ProducerBatch) -> ProducerState:
    state = ProducerState()
    for batch in batches:
        state.update([batch], batch.last_offset + 1)
    return state


def never_read(_position: int, _size: int) -> bytes:
    pytest.fail("the log was read")


def open_transaction(state: ProducerState, producer: int, epoch: int) -> int | None:
    """Where the producer's transaction starts, if it has one open in this epoch."""
    entry = next((entry for entry in state.entries() if entry.producer_id == producer), None)
    assert state.entry(producer) == entry
    if entry is None or entry.producer_epoch != epoch or entry.transaction_first_offset < 0:
        return None
    return entry.transaction_first_offset


# Sequence numbers


def test_sequence_numbers_follow_each_other() -> None:
    state = state_of(data(0, 0, count=3))
    assert state.check(data(3, 3)) is None
    for wrong in (0, 1, 4, 5):
        with pytest.raises(OutOfOrderSequence, match=f"expected sequence number 3, found {wrong}"):
            state.check(data(3, wrong))


def test_an_unknown_producer_starts_anywhere() -> None:
    assert ProducerState().check(data(5, 12345)) is None


def test_sequence_numbers_start_again_after_the_last() -> None:
    state = state_of(data(0, LAST_SEQUENCE - 1, count=2))
    assert state.check(data(2, 0)) is None
    with pytest.raises(OutOfOrderSequence):
        state.check(data(2, 1))
    wrapped = state_of(data(0, LAST_SEQUENCE, count=3))
    assert wrapped.check(data(3, 2)) is None
    assert wrapped.check(data(9, LAST_SEQUENCE, count=3)) == WrittenBatch(LAST_SEQUENCE, 1, 0, 2, 1000)


def test_checking_changes_nothing() -> None:
    state = state_of(data(0, 0))
    before = state.entries()
    state.check(data(1, 1))
    state.check(data(1, 1, transactional=True))
    assert state.entries() == before
    assert state.end_offset == 1


def test_a_coordinator_has_no_sequence_numbers() -> None:
    state = state_of(data(0, -1, transactional=True), data(1, -1, transactional=True))
    assert state.check(data(2, -1, transactional=True), origin=COORDINATOR) is None
    assert state.entries()[0].last_sequence == -1


# Repeated batches


def test_the_last_five_batches_are_known_again() -> None:
    state = state_of(*(data(10 * n, 2 * n, count=2, time=n) for n in range(7)))
    for n in range(2, 7):
        repeated = state.check(data(99, 2 * n, count=2))
        assert repeated == WrittenBatch(2 * n, 2 * n + 1, 10 * n, 10 * n + 1, n)
    for n in (0, 1):
        with pytest.raises(OutOfOrderSequence):
            state.check(data(99, 2 * n, count=2))


def test_a_repeated_batch_has_the_same_sequence_numbers_and_epoch() -> None:
    state = state_of(data(0, 0, count=2))
    with pytest.raises(OutOfOrderSequence):
        state.check(data(2, 0, count=3))
    assert state.check(data(2, 0, count=2, epoch=1)) is None


def test_only_a_client_repeats() -> None:
    state = state_of(data(0, 0))
    assert state.check(data(1, 0), origin=COORDINATOR) is None


# Epochs


def test_an_older_epoch_is_fenced() -> None:
    state = state_of(data(0, 0, epoch=3))
    for origin in (AppendOrigin.CLIENT, COORDINATOR):
        with pytest.raises(ProducerFenced, match="expected an epoch at least 3, found 2"):
            state.check(data(1, 1, epoch=2), origin=origin)


def test_a_new_epoch_starts_at_sequence_0_and_forgets() -> None:
    state = state_of(data(0, 0, epoch=3))
    with pytest.raises(OutOfOrderSequence, match="0, the first of epoch 4"):
        state.check(data(1, 1, epoch=4))
    assert state.check(data(1, 0, epoch=4)) is None
    state.update([data(1, 0, epoch=4)], 2)
    assert state.check(data(2, 0, epoch=4)) is not None
    with pytest.raises(ProducerFenced):
        state.check(data(2, 0, epoch=3))


# Transactions


def test_a_transaction_opens_with_its_first_batch() -> None:
    state = state_of(data(5, 0, transactional=True), data(6, 1, transactional=True))
    assert open_transaction(state, PRODUCER, 0) == 5
    assert open_transaction(state, PRODUCER, 1) is None
    assert open_transaction(state, OTHER, 0) is None
    assert state.first_unstable_offset == 5


def test_a_producer_writes_nothing_outside_of_its_transaction() -> None:
    state = state_of(data(5, 0, transactional=True))
    with pytest.raises(InvalidTransactionState, match="open since offset 5"):
        state.check(data(6, 1))
    state.update([marker(6, commit=True)], 7)
    assert state.check(data(7, 1)) is None


def test_an_abort_is_indexed_and_a_commit_is_not() -> None:
    state = state_of(data(5, 0, transactional=True))
    assert state.update([marker(6)], 7) == [
        AbortedTransaction(producer_id=PRODUCER, first_offset=5, last_offset=6, last_stable_offset=7)
    ]
    state = state_of(data(5, 0, transactional=True))
    assert state.update([marker(6, commit=True)], 7) == []
    assert open_transaction(state, PRODUCER, 0) is None


def test_an_abort_remembers_the_oldest_transaction_of_another() -> None:
    state = state_of(
        data(0, 0, transactional=True),
        data(1, 0, producer=OTHER, transactional=True),
        data(2, 0, producer=9, transactional=True),
    )
    (entry,) = state.update([marker(3)], 4)
    assert entry.last_stable_offset == 1
    (entry,) = state.update([marker(4, producer=9)], 5)
    assert entry.last_stable_offset == 1
    (entry,) = state.update([marker(5, producer=OTHER)], 6)
    assert (entry.first_offset, entry.last_stable_offset) == (1, 6)


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    state = state_of(data(0, 0))
    assert state.update([marker(1, coordinator_epoch=4)], 2) == []
    assert state.first_unstable_offset is None
    assert state.check(data(2, 1)) is None
    assert state.entries()[0].coordinator_epoch == 4


def test_a_marker_keeps_the_batches_unless_the_epoch_changes() -> None:
    state = state_of(data(0, 0, transactional=True), marker(1, commit=True))
    assert state.check(data(2, 0, transactional=True)) is not None
    state.update([marker(2, epoch=1)], 3)
    assert state.check(data(3, 0, epoch=1, transactional=True)) is None


def test_a_marker_alone_makes_a_producer_known() -> None:
    state = state_of(marker(0, epoch=5))
    with pytest.raises(ProducerFenced):
        state.check(data(1, 0, epoch=4))
    with pytest.raises(OutOfOrderSequence):
        state.check(data(1, 3, epoch=5))
    assert state.check(data(1, 0, epoch=5)) is None


def test_markers_are_fenced_by_epoch() -> None:
    state = state_of(data(0, 0, epoch=3, transactional=True))
    assert state.check(marker(1, epoch=3), origin=COORDINATOR) is None
    assert state.check(marker(1, epoch=4), origin=COORDINATOR) is None
    with pytest.raises(ProducerFenced):
        state.check(marker(1, epoch=2), origin=COORDINATOR)


def test_markers_of_transaction_version_2_have_the_next_epoch() -> None:
    state = state_of(data(0, 0, epoch=3, transactional=True))

    def check(epoch: int) -> None:
        state.check(marker(1, epoch=epoch), origin=COORDINATOR, transaction_version=2)

    check(4)
    for wrong in (2, 3):
        with pytest.raises(ProducerFenced, match="over 3"):
            check(wrong)
    state.update([marker(1, epoch=4)], 2)
    check(4)
    with pytest.raises(ProducerFenced):
        check(3)


def test_after_the_last_epoch_a_marker_keeps_it() -> None:
    state = state_of(data(0, 0, epoch=32767, transactional=True))
    state.check(marker(1, epoch=32767), origin=COORDINATOR, transaction_version=2)


def test_the_first_batch_of_transaction_version_2_has_sequence_0() -> None:
    for state in (ProducerState(), state_of(marker(0))):
        with pytest.raises(OutOfOrderSequence, match="expected sequence number 0"):
            state.check(data(1, 3, transactional=True), transaction_version=2)
        assert state.check(data(1, 0, transactional=True), transaction_version=2) is None


def test_an_older_coordinator_is_fenced() -> None:
    state = state_of(data(0, 0, transactional=True), marker(1, coordinator_epoch=6))
    with pytest.raises(CoordinatorFenced, match="has epoch 6: a marker of the older epoch"):
        state.check(marker(2, coordinator_epoch=5), origin=COORDINATOR)
    assert state.check(marker(2, coordinator_epoch=6), origin=COORDINATOR) is None


# The last stable offset


def test_readers_of_committed_data_stop_at_the_oldest_open_transaction() -> None:
    state = state_of(data(3, 0, transactional=True), data(4, 0, producer=OTHER, transactional=True))
    assert state.last_stable_offset(5) == 3
    assert state.last_stable_offset(2) == 2
    assert state.last_stable_offset(5, log_start_offset=4) == 4
    state.update([marker(5, commit=True)], 6)
    assert state.last_stable_offset(6) == 4
    state.update([marker(6, producer=OTHER)], 7)
    assert state.last_stable_offset(7) == 7


def test_a_transaction_is_stable_once_its_end_is_visible() -> None:
    state = state_of(data(3, 0, transactional=True), marker(4, commit=True))
    assert state.first_unstable_offset == 3
    assert state.last_stable_offset(4) == 3
    assert state.last_stable_offset(5) == 5
    assert state.first_unstable_offset is None


def test_a_log_without_transactions_is_stable() -> None:
    assert state_of(data(0, 0)).last_stable_offset(1) == 1


# Expiry, snapshots


def test_producers_expire_by_the_time_of_their_records() -> None:
    state = ProducerState(expiration_ms=100)
    state.update([data(0, 0, time=50), data(1, 0, producer=OTHER, time=51)], 2)
    state.update([data(2, 0, producer=9, time=0, transactional=True)], 3)
    assert expire(state, 149) == 0
    assert expire(state, 150) == 1
    assert sorted(entry.producer_id for entry in state.entries()) == [OTHER, 9]
    assert state.check(data(3, 55)) is None
    assert expire(state, 10**9) == 1
    assert open_transaction(state, 9, 0) == 2


def test_a_snapshot_keeps_the_last_batch_only() -> None:
    state = state_of(
        data(0, 0, count=2, time=5),
        data(2, 2, count=3, time=6),
        data(9, 0, producer=OTHER, epoch=2, transactional=True, time=7),
        marker(10, producer=12, epoch=1, coordinator_epoch=3, time=8),
    )
    again = ProducerState.from_snapshot(state.snapshot(), state.end_offset, now_ms=0)
    assert again.entries() == state.entries()
    assert again.end_offset == 11
    assert again.check(data(11, 2, count=3)) == WrittenBatch(2, 4, 2, 4, 6)
    with pytest.raises(OutOfOrderSequence):
        again.check(data(11, 0, count=2))
    assert again.check(data(11, 5)) is None
    assert open_transaction(again, OTHER, 2) == 9
    assert again.last_stable_offset(11) == 9
    assert ProducerEntry(
        producer_id=12,
        producer_epoch=1,
        last_sequence=-1,
        last_offset=-1,
        offset_delta=0,
        timestamp_ms=8,
        coordinator_epoch=3,
        transaction_first_offset=-1,
    ) in decode_producer_snapshot(again.snapshot())


def test_transactions_of_a_snapshot_are_in_order() -> None:
    """A snapshot is in no order, but the entry of an abort names the oldest transaction."""
    entries = [
        ProducerEntry(
            producer_id=producer,
            producer_epoch=0,
            last_sequence=0,
            last_offset=first,
            offset_delta=0,
            timestamp_ms=0,
            coordinator_epoch=-1,
            transaction_first_offset=first,
        )
        for producer, first in ((1, 30), (2, 10), (3, 20))
    ]
    state = ProducerState.from_snapshot(encode_producer_snapshot(entries), 40, now_ms=0)
    (entry,) = state.update([marker(40, producer=1)], 41)
    assert entry.last_stable_offset == 10


def test_expired_producers_are_not_loaded() -> None:
    state = state_of(data(0, 0, time=5), data(1, 0, producer=OTHER, time=5, transactional=True))
    again = ProducerState.from_snapshot(state.snapshot(), 2, now_ms=105, expiration_ms=100)
    assert [entry.producer_id for entry in again.entries()] == [OTHER]


def test_starting_again_forgets_all() -> None:
    state = state_of(data(0, 0, transactional=True))
    state.clear(50)
    assert (len(state), state.end_offset, state.first_unstable_offset) == (0, 50, None)


def test_the_start_of_the_log_moves_the_end_of_an_empty_state() -> None:
    state = state_of(data(0, 0, transactional=True), marker(1))
    state.advance_log_start(10)
    assert state.end_offset == 10
    assert state.first_unstable_offset is None


# Replaying


def control_batch(offset: int, control: control_records.ControlRecord, **fields: Any) -> bytes:
    key, value = control_records.encode(control)
    return record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=9)],
        base_offset=offset,
        is_control=True,
        is_transactional=True,
        producer_id=PRODUCER,
        **{"producer_epoch": 0, **fields},
    )


def scanned(log: bytes) -> np.ndarray:
    rows = np.empty(64, BATCH_DTYPE)
    count, _, _ = scan_batches(np.frombuffer(log, np.uint8), 0, True, rows)
    return rows[:count]


def test_replay_reads_markers_from_the_log() -> None:
    transactional: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": 0, "is_transactional": True}
    log = b"".join(
        (
            record_batch.encode([Record(value=b"plain", timestamp_ms=1)]),
            record_batch.encode([Record(timestamp_ms=1)] * 2, base_offset=1, base_sequence=0, **transactional),
            control_batch(3, EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=2)),
            record_batch.encode([Record(timestamp_ms=1)], base_offset=4, base_sequence=2, **transactional),
        )
    )
    state = ProducerState()
    read: list[tuple[int, int]] = []

    def read_log(position: int, size: int) -> bytes:
        read.append((position, size))
        return log[position : position + size]

    assert state.replay(scanned(log), read_log) == [
        AbortedTransaction(producer_id=PRODUCER, first_offset=1, last_offset=3, last_stable_offset=4)
    ]
    assert [size for _, size in read] == [78]
    assert open_transaction(state, PRODUCER, 0) == 4
    assert state.end_offset == 5
    (entry,) = state.entries()
    assert (entry.coordinator_epoch, entry.last_sequence, entry.timestamp_ms) == (2, 2, 1)


def test_control_batches_without_a_marker_are_read_over() -> None:
    damaged = bytearray(control_batch(1, EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=2)))
    damaged[-8] ^= 0x40
    log = b"".join(
        (
            bytes(damaged),
            control_batch(2, control_records.SnapshotFooter()),
        )
    )
    rows = scanned(log)
    assert len(rows) == 2
    state = ProducerState()
    assert state.replay(rows, lambda position, size: log[position : position + size]) == []
    assert (len(state), state.end_offset) == (0, 3)


def test_a_marker_that_compaction_took_out_has_ended_its_transaction() -> None:
    """A snapshot from the middle of the transaction may be all that is left of it."""
    opened = state_of(data(0, 0, transactional=True)).snapshot()
    state = ProducerState.from_snapshot(opened, 1, now_ms=0)
    assert state.last_stable_offset(1) == 0
    log = record_batch.encode(
        [],
        base_offset=1,
        last_offset=1,
        is_control=True,
        is_transactional=True,
        producer_id=PRODUCER,
        producer_epoch=3,
        max_timestamp_ms=9,
    )
    assert state.replay(scanned(log), never_read) == []
    assert state.last_stable_offset(2) == 2
    (entry,) = state.entries()
    assert (entry.producer_epoch, entry.timestamp_ms, entry.coordinator_epoch) == (3, 9, -1)


def test_replay_takes_what_an_append_would_refuse() -> None:
    """What lies in the log was accepted once: nothing of it stops a start."""
    rows = np.zeros(3, BATCH_DTYPE)
    rows["producer_id"] = PRODUCER
    rows["producer_epoch"] = [5, 2, 2]
    rows["base_sequence"] = [40, 7, 90]
    rows["base_offset"] = rows["last_offset"] = [0, 1, 2]
    rows["attributes"] = [0x10, 0x10, 0]
    state = ProducerState()
    state.replay(rows, never_read)
    (entry,) = state.entries()
    assert (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset) == (2, 90, 0)


def test_no_rows_change_nothing() -> None:
    state = ProducerState(end_offset=9)
    assert state.replay(np.zeros(0, BATCH_DTYPE), never_read) == []
    assert state.end_offset == 9


def test_few_of_many_batches_are_looked_at() -> None:
    rows = np.zeros(1000, BATCH_DTYPE)
    rows["producer_id"] = np.arange(1000) % 4 - 1
    rows["base_offset"] = rows["last_offset"] = rows["base_sequence"] = np.arange(1000)
    assert len(list(producer_batches(rows, never_read))) == 750
    lasting = list(producer_batches(rows, never_read, only_lasting=True))
    assert len(lasting) == 15
    assert {batch.base_offset for batch in lasting} == set(range(980, 1000)) - set(range(980, 1000, 4))


# Snapshot files


@pytest.fixture
def snapshots(tmp_path: Path) -> ProducerSnapshots:
    for name in ("00000000000000000000.log", "00000000000000000007.snapshot.deleted", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    return ProducerSnapshots(LocalFileSystem(), str(tmp_path))


def fill(snapshots: ProducerSnapshots, *offsets: int) -> None:
    for offset in offsets:
        assert snapshots.take(state_of(data(offset - 1, 0)), sync=False)


def names(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.snapshot"))


def test_snapshots_are_named_after_their_offset(snapshots: ProducerSnapshots, tmp_path: Path) -> None:
    assert snapshots.offsets == ()
    assert snapshots.latest_offset is None
    fill(snapshots, 10, 20)
    assert snapshots.offsets == (10, 20) == tuple(names(tmp_path))
    assert snapshots.latest_offset == 20
    assert ProducerSnapshots(LocalFileSystem(), str(tmp_path)).offsets == (10, 20)


def test_a_snapshot_is_taken_of_newer_states_only(snapshots: ProducerSnapshots, tmp_path: Path) -> None:
    assert not snapshots.take(ProducerState(), sync=False)
    assert not snapshots.take(ProducerState(end_offset=5), sync=False, log_start_offset=5)
    fill(snapshots, 10)
    assert not snapshots.take(ProducerState(end_offset=10), sync=True)
    assert not snapshots.take(ProducerState(end_offset=9), sync=True)
    assert snapshots.take(ProducerState(end_offset=11), sync=True)
    assert names(tmp_path) == [10, 11]


def test_the_newest_whole_snapshot_within_the_log_is_loaded(snapshots: ProducerSnapshots, tmp_path: Path) -> None:
    fill(snapshots, 10, 20, 30, 40)
    state = snapshots.load(0, 35, now_ms=0)
    assert (state.end_offset, state.entries()[0].last_offset) == (30, 29)
    (tmp_path / "00000000000000000030.snapshot").write_bytes(b"half")
    assert snapshots.load(0, 35, now_ms=0).end_offset == 20
    assert names(tmp_path) == [10, 20, 40]
    nothing = snapshots.load(20, 35, now_ms=0)
    assert (nothing.end_offset, len(nothing)) == (20, 0)


def test_a_damaged_snapshot_says_so(snapshots: ProducerSnapshots) -> None:
    with pytest.raises(CorruptRecord):
        ProducerState.from_snapshot(b"half", 5, now_ms=0)


def test_removing(snapshots: ProducerSnapshots, tmp_path: Path) -> None:
    fill(snapshots, 10, 20, 30, 40, 50)
    snapshots.remove_outside(10, 40)
    assert names(tmp_path) == [20, 30, 40] == list(snapshots.offsets)
    snapshots.remove_outside(20, 40)
    assert names(tmp_path) == [30, 40]
    marked = snapshots.mark_deleted(30)
    assert marked == str(tmp_path / "00000000000000000030.snapshot.deleted")
    assert Path(marked).exists()
    assert snapshots.mark_deleted(30) is None
    assert snapshots.offsets == (40,)
    snapshots.remove_all()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("bases", "left"),
    [
        ((0, 10, 30), [10, 30, 50]),
        ((0, 20, 50), [20, 50]),
        ((0,), [50]),
        ((), [50]),
        ((60,), []),
        ((0, 51), []),
        ((0, 50), [50]),
        ((0, 10, 20, 30, 40, 50), [10, 20, 30, 40, 50]),
        ((0, 45), [50]),
    ],
)
def test_stray_snapshots(snapshots: ProducerSnapshots, tmp_path: Path, bases: tuple[int, ...], left: list[int]) -> None:
    fill(snapshots, 10, 20, 30, 40, 50)
    snapshots.remove_stray(bases)
    assert names(tmp_path) == left == list(snapshots.offsets)
