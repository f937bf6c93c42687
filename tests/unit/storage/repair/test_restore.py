"""Putting valid batches back from quarantine, where their offsets are free."""

from __future__ import annotations

from contextlib import suppress

import pytest

from duralog.format import record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker, encode
from duralog.format.filenames import FileKind
from duralog.format.record import Record
from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.repair.restore import Restored, restore
from tests.support.faults.crashing_files import CrashingFiles, PowerLost
from tests.support.storage.recovery_files import (
    FOLDER,
    NOW_MS,
    batch,
    batches,
    close,
    load,
    make_partition,
    offsets_in,
    offsets_on_disk,
    path,
    with_flipped_bit,
)

SIZE = len(batch(0))
BROKEN = {0: with_flipped_bit(batches((0, 2, 4, 6)), SIZE + 70), 10: batches((10, 12)), 20: batches((20, 22))}
"""The second batch is damaged, so that the log ends at offset 2."""


def broken() -> CrashingFiles:
    disk = CrashingFiles()
    make_partition(disk, BROKEN)
    close(load(disk))
    assert offsets_on_disk(disk) == {0: [(0, 1)]}
    return disk


def restored(disk: CrashingFiles, *, log_start: int = 0, dry_run: bool = False) -> list[Restored]:
    return restore(disk, FOLDER, clock=lambda: NOW_MS, log_start_offset=log_start, dry_run=dry_run)


def offsets(results: list[Restored]) -> list[tuple[int, int]]:
    return sorted(found for result in results for found in result.restored_offsets)


def test_everything_valid_goes_back_where_it_was() -> None:
    disk = broken()
    results = restored(disk)
    assert offsets(results) == [(4, 5), (6, 7), (10, 11), (12, 13), (20, 21), (22, 23)]
    assert [result.other_batches for result in results] == [0, 0, 0]
    loaded = load(disk, clean=True)
    assert loaded.end_offset == 24
    close(loaded)
    assert offsets_on_disk(disk) == {
        0: [(0, 1), (4, 5), (6, 7)],
        10: [(10, 11), (12, 13)],
        20: [(20, 21), (22, 23)],
    }
    assert disk.read_all(path(10)) == BROKEN[10]
    assert disk.read_all(path(0)) == BROKEN[0][:SIZE] + BROKEN[0][2 * SIZE :]
    # Indexes that the log needs were built when it was loaded.
    assert disk.exists(path(10, FileKind.OFFSET_INDEX))


def test_what_is_written_since_stays() -> None:
    disk = broken()
    log = disk.read_all(path(0)) + batches((2, 4, 12))
    make_partition(disk, {0: log})
    close(load(disk))
    results = restored(disk)
    assert offsets(results) == [(6, 7), (10, 11), (20, 21), (22, 23)]
    assert sum(result.other_batches for result in results) == 2
    assert load(disk).end_offset == 24
    # Offsets 10 and 11 lie in the range of the segment at 0 now.
    assert offsets_on_disk(disk) == {
        0: [(0, 1), (2, 3), (4, 5), (6, 7), (10, 11), (12, 13)],
        20: [(20, 21), (22, 23)],
    }


def test_nothing_below_the_start_of_the_log_goes_back() -> None:
    disk = broken()
    assert offsets(restored(disk, log_start=11)) == [(10, 11), (12, 13), (20, 21), (22, 23)]


def test_a_dry_run_reports_the_same_and_changes_nothing() -> None:
    disk = broken()
    changes = disk.changes
    told = offsets(restored(disk, dry_run=True))
    assert disk.changes == changes
    assert told == offsets(restored(disk))


def test_a_listener_is_called_before_the_log_of_a_segment_changes() -> None:
    disk = broken()
    found: list[int] = []

    def before_change(base_offset: int) -> None:
        # The others have none: they went as a whole.
        logs = {base: log for base, log in offsets_on_disk(disk).items() if base >= base_offset}
        assert logs == ({0: [(0, 1)]} if base_offset == 0 else {})
        found.append(base_offset)

    for dry_run in (True, False):
        assert found == []
        restore(disk, FOLDER, clock=lambda: NOW_MS, before_change=before_change, dry_run=dry_run)
    assert found == [0, 10, 20]


def test_a_second_time_there_is_nothing_to_do() -> None:
    disk = broken()
    restored(disk)
    before = offsets_on_disk(disk)
    results = restored(disk)
    assert offsets(results) == []
    assert [result.report.restored_batches for result in results] == [2, 2, 2]
    assert offsets_on_disk(disk) == before


def test_batches_from_before_the_first_segment_get_one_of_their_own() -> None:
    disk = broken()
    disk.remove(path(0))
    make_partition(disk, {30: batches((30,))})
    assert offsets(restored(disk))[0] == (4, 5)
    assert list(offsets_on_disk(disk)) == [0, 10, 20, 30]


def test_snapshots_that_do_not_know_of_the_batches_go() -> None:
    disk = CrashingFiles()
    make_partition(disk, {0: batch(0, producer_id=5), 10: batch(10) + batch(12, producer_id=7) + batch(14)[:-1]})
    close(load(disk))
    make_partition(disk, {10: with_flipped_bit(disk.read_all(path(10)), 70)})
    close(load(disk))
    assert ProducerSnapshots(disk, FOLDER).offsets == (10,)
    make_partition(disk, {10: batch(10)})
    loaded = load(disk)
    assert [entry.producer_id for entry in loaded.read_producers().entries()] == [5]
    close(loaded)
    assert ProducerSnapshots(disk, FOLDER).offsets == (10, 12)
    assert offsets(restored(disk)) == [(12, 13)]
    assert ProducerSnapshots(disk, FOLDER).offsets == ()
    assert [entry.producer_id for entry in load(disk, clean=True).read_producers().entries()] == [5, 7]


def test_a_partition_without_quarantine_has_nothing_to_put_back() -> None:
    disk = CrashingFiles()
    make_partition(disk, {0: batches((0, 2))})
    assert restored(disk) == []


@pytest.mark.parametrize("seed", range(2))
def test_no_crash_while_restoring_loses_a_batch(seed: int) -> None:
    finished = broken()
    begin = finished.changes
    restored(finished)
    for change in range(finished.changes - begin + 1):
        disk = broken()
        disk.lose_power_after(change)
        with suppress(PowerLost):
            restored(disk)
        disk = disk.after_power_loss(seed)
        close(load(disk, clean=True))
        restored(disk)
        assert load(disk, clean=True).end_offset == 24
        log = b"".join(disk.read_all(path(base_offset)) for base_offset in (0, 10, 20))
        assert [first for first, _ in offsets_in(log)] == [0, 4, 6, 10, 12, 20, 22], change


def test_a_batch_goes_back_only_between_those_it_stood_between() -> None:
    # Offsets are outside the checksum: this one is wrong, and would be free.
    disk = CrashingFiles()
    make_partition(disk, {0: batches((0, 2)) + batch(1000) + batches((4, 6)), 10: batches((10,))})
    close(load(disk))
    assert offsets_on_disk(disk) == {0: [(0, 1), (2, 3), (4, 5), (6, 7)], 10: [(10, 11)]}
    (result,) = restored(disk)
    assert (result.restored_offsets, result.other_batches) == ((), 1)
    assert load(disk).end_offset == 12


def test_transactions_that_end_in_a_segment_behind_are_known_again() -> None:
    def in_transaction(offset: int, marker: ControlType | None = None) -> bytes:
        key, value = (b"k", b"v") if marker is None else encode(EndTransactionMarker(type=marker, coordinator_epoch=0))
        return record_batch.encode(
            [Record(key=key, value=value, timestamp_ms=1)],
            base_offset=offset,
            leader_epoch=0,
            producer_id=1,
            producer_epoch=0,
            base_sequence=-1 if marker else offset,
            is_transactional=True,
            is_control=marker is not None,
        )

    disk = CrashingFiles()
    make_partition(
        disk,
        {
            # From the first batch, nothing tells where the next one starts.
            0: b"\xff" * SIZE + in_transaction(4),
            10: in_transaction(10, ControlType.ABORT),
            20: batches((20,)),
            30: batches((30,)),
        },
    )
    close(load(disk, recovery_point=100))
    assert offsets_on_disk(disk)[0] == []
    assert offsets(restored(disk)) == [(4, 4)]
    loaded = load(disk, recovery_point=100)
    assert [entry.first_offset for entry in loaded.segments[1].transaction_index.entries] == [4]
