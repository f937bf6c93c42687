"""Crashes that once lost data, each as its own story. `test_crash_points` finds similar ones at random."""

from __future__ import annotations

from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.quarantine import Quarantine
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.partition import NOW_MS, Partition

SEEDS = range(40)
FIRST_LOG = "00000000000000000000.log"
MARKER_BYTES = 78


def record(number: int) -> Record:
    return Record(value=b"%d" % number, timestamp_ms=START_MS + number)


def opened() -> tuple[CrashingFiles, Partition, PartitionLog]:
    files = CrashingFiles()
    partition = Partition(files)
    return files, partition, partition.open()


def append(log: PartitionLog, *numbers: int) -> None:
    for number in numbers:
        log.append([record(number)])


def append_in_transaction(log: PartitionLog, number: int, sequence: int) -> None:
    log.append([record(number)], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def values(log: PartitionLog, isolation: str = "read_uncommitted") -> list[int]:
    return [int(found.value or b"") for found in log.read(log.start_offset, isolation=isolation)]


def test_a_new_start_does_not_count_unsynced_records_as_durable() -> None:
    """The recovery point is checkpointed before the start is: then the old start is back, with what is behind it."""
    _, partition, log = opened()
    append(log, 0, 1, 2)
    log.delete_records(2)
    log.roll()
    partition.delete_old_segments(log)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3


def test_a_clean_stop_does_not_forget_producers() -> None:
    """Without a snapshot after a clean stop, no producer is known: its name must be safe before the marker is."""
    files, partition, log = opened()
    sent = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    log.append([record(0)], **sent)  # type: ignore[arg-type]
    partition.close(log)
    for seed in SEEDS:
        again = Partition(files.after_power_loss(seed)).open()
        assert again.append([record(0)], **sent).duplicate  # type: ignore[arg-type]


def test_a_segment_that_was_synced_before_it_was_rolled_is_found_by_time() -> None:
    """The last entry of its time index comes with the roll, when the recovery point is beyond the segment already."""
    files, partition, log = opened()
    append(log, 0, 1, 2)
    log.flush()
    partition.checkpoint(log)
    log.roll()
    for seed in SEEDS:
        found = Partition(files.after_power_loss(seed)).open().offset_for_timestamp(START_MS + 2)
        assert found is not None
        assert found.offset == 2


def test_what_a_process_left_unsynced_when_it_died_is_synced_by_the_next() -> None:
    """The same entry, but the process dies first: the next one raises the recovery point, and power is lost."""
    files, partition, log = opened()
    append(log, 0, 1, 2)
    log.flush()
    partition.checkpoint(log)
    log.roll()
    killed = files.after_kill()
    partition = Partition(killed)
    log = partition.open()
    append(log, 3)
    log.flush()
    partition.checkpoint(log)
    for seed in SEEDS:
        found = Partition(killed.after_power_loss(seed)).open().offset_for_timestamp(START_MS + 2)
        assert found is not None
        assert found.offset == 2


def test_an_end_of_a_segment_that_is_missing_ends_the_log() -> None:
    """Without the marker that aborts the first record, the commit of the second would count for both."""
    files, partition, log = opened()
    append_in_transaction(log, 0, 0)
    log.flush()
    partition.checkpoint(log)
    log.end_transaction(7, 0, commit=False)
    log.roll()
    append_in_transaction(log, 2, 1)
    log.end_transaction(7, 0, commit=True)
    assert values(log, "read_committed") == [2]

    crashed = files.after_kill()
    path = f"{partition.folder}/{FIRST_LOG}"
    crashed.truncate(path, len(crashed.read_all(path)) - MARKER_BYTES)
    again = Partition(crashed).open()
    assert (again.end_offset, again.last_stable_offset) == (1, 0)
    assert values(again) == [0]
    assert values(again, "read_committed") == []
    (report,) = Quarantine(crashed, partition.folder, lambda: NOW_MS).reports()
    assert (report.base_offset, report.offset_before) == (2, 0)


def test_a_batch_whose_offset_never_came_to_the_disk_ends_the_log() -> None:
    """An offset stands outside the checksum, and may stand alone at the end of a sector."""
    files, partition, log = opened()
    append(log, 0)
    log.flush()
    partition.checkpoint(log)
    size = log.size_bytes
    append(log, 1, 2)
    crashed = files.after_kill()
    content = bytearray(crashed.read_all(f"{partition.folder}/{FIRST_LOG}"))
    content[size : size + 8] = bytes(8)
    crashed.write(f"{partition.folder}/{FIRST_LOG}", content, sync=True)
    assert values(Partition(crashed).open()) == [0]
    quarantine = Quarantine(crashed, partition.folder, lambda: NOW_MS)
    (report,) = quarantine.reports()
    kept = quarantine.open(report)
    assert kept.read(0, kept.size) == content[size:]


def test_truncating_over_several_segments_leaves_a_beginning_of_the_log() -> None:
    files, partition, log = opened()
    for number in range(6):
        append(log, number)
        log.roll()
    log.flush()
    partition.catch_up()
    partition.checkpoint(log)
    found: set[int] = set()

    def lose_power() -> None:
        for seed in range(10):
            left = values(Partition(files.after_power_loss(seed)).open())
            assert left == list(range(len(left)))
            found.add(len(left))

    files.on_change = lose_power
    log.truncate_to(2)
    assert found == {2, 3, 4, 5, 6}
    found.clear()
    lose_power()
    assert found == {2}
