"""A disk that fails or is full: the error names the file and the operation, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from duralog.errors import StorageError
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog
from tests.support.faults.aftermath import summary
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.ledger import Outcome
from tests.support.faults.partition import DIRECTORY, SMALL_SEGMENTS, Partition
from tests.support.faults.workload import Workload

STEPS = 40
LIVES = 3
REFUSALS = 3
NAMES_FILE_AND_OPERATION = re.compile(rf"^{DIRECTORY}[^ :]*: cannot [a-z][^:]*: .")


class TroubledLife(Workload):
    """A life in which the disk may refuse. After each error the log either continues unchanged, or says that it must be
    opened again.
    """

    errors = 0
    reopened = 0

    def step(self) -> None:
        try:
            super().step()
        except StorageError as error:
            self.errors += 1
            check_told(error)
            self.look_after_error()

    def look_after_error(self) -> None:
        if self.must_be_reopened():
            self.reopen()
        for transaction in self.ledger.open.values():
            transaction.outcome, transaction.marker_offset = Outcome.OPEN, None
        self.check_acknowledged()

    def must_be_reopened(self) -> bool:
        try:
            self.log.append([])
        except StorageError as error:
            return bool(re.search("must be opened again|was closed", str(error)))
        return False

    def reopen(self) -> None:
        """As often as it takes: closing and opening may meet the refusal, too."""
        self.reopened += 1
        with suppress(StorageError):
            self.log.close()
        for _ in range(REFUSALS):
            with suppress(StorageError):
                self.log = self.partition.open()
                break
        else:
            self.log = self.partition.open()
        assert self.log.end_offset >= self.ledger.end_offset
        self.ledger.found(self.log)

    def check_acknowledged(self) -> None:
        start = self.ledger.start_offset
        found = {record.offset: record.value for record in self.log.read(self.log.start_offset)}
        expected = {
            offset: entry.record.value for offset, entry in self.ledger.written.items() if entry.record is not None
        }
        assert {offset: value for offset, value in found.items() if offset >= start} == {
            offset: value for offset, value in expected.items() if offset >= start
        }
        assert self.log.end_offset == self.ledger.end_offset


def check_told(error: StorageError) -> None:
    assert NAMES_FILE_AND_OPERATION.match(str(error)), str(error)


def live_with(refuse: Callable[[CrashingFiles], None], life: int) -> TroubledLife:
    files = CrashingFiles(seed=life)
    workload = TroubledLife(files, life)
    refuse(files)
    workload.run(STEPS)
    files.stop_refusing()
    workload.look_after_error()
    workload.append()
    workload.flush()
    workload.ledger.check(workload.log)
    for seed in range(2):
        workload.ledger.check(Partition(files.after_power_loss(seed)).open())
    return workload


@pytest.mark.parametrize("life", range(LIVES))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["broken", "full"])
def test_any_operation_may_fail_once(code: int, life: int, randomised: int) -> None:
    errors = reopened = 0
    for number in range(life, 250, max(1, 12 // randomised)):
        workload = live_with(lambda files, number=number: files.refuse(code, skip=number), life)  # type: ignore[misc]
        errors += workload.errors
        reopened += workload.reopened
    assert errors >= 3
    assert reopened < errors


@pytest.mark.parametrize(
    "operation",
    ["append", "truncate", "sync", "sync the folder", "rename", "remove", "open", "map", "reserve", "write"],
)
def test_an_operation_that_fails_for_a_while(operation: str) -> None:
    def refuse(files: CrashingFiles) -> None:
        files.refuse(errno.EIO, operation=operation, skip=1, times=REFUSALS)

    live_with(refuse, life=7)


def opened(capacity_bytes: int | None = None) -> tuple[CrashingFiles, Partition, PartitionLog]:
    files = CrashingFiles(capacity_bytes=capacity_bytes)
    partition = Partition(files)
    return files, partition, partition.open()


def record(number: int, size: int = 300) -> Record:
    return Record(value=number.to_bytes(4) + bytes(size), timestamp_ms=START_MS + number)


def numbers(log: PartitionLog) -> list[int]:
    return [int.from_bytes(found.value[:4]) for found in log.read(log.start_offset) if found.value is not None]


def test_a_full_disk_refuses_appends_until_there_is_room() -> None:
    files, partition, log = opened(capacity_bytes=30_000)
    written: list[int] = []

    def fill() -> None:
        while True:
            log.append([record(len(written))])
            written.append(len(written))

    with pytest.raises(StorageError, match=r"cannot .*: No space left on device") as caught:
        fill()
    check_told(caught.value)
    assert len(written) > 60
    for _ in range(3):
        with pytest.raises(StorageError, match="No space left"):
            log.append([record(0, 4000)])
    assert numbers(log) == written
    assert not log.in_doubt

    log.delete_records(written[50])
    partition.delete_old_segments(log)
    partition.catch_up()
    for number in range(1000, 1010):
        log.append([record(number)])
    log.flush()
    expected = [*written[50:], *range(1000, 1010)]
    assert numbers(log) == expected
    partition.checkpoint(log)
    assert numbers(Partition(files.after_power_loss(1)).open()) == expected


def test_a_failed_sync_is_not_asked_again() -> None:
    """Linux forgets what it could not write: a second sync would succeed and say nothing."""
    files, _, log = opened()
    files.forgets_failed_syncs = True
    log.append([record(1)])
    log.flush()
    recovery_point = log.recovery_point
    log.append([record(2)])
    files.refuse(errno.EIO, operation="sync", path=".log")
    with pytest.raises(StorageError, match=r"00000000000000000000\.log: cannot sync: Input/output error"):
        log.flush()
    for refused in (log.flush, log.roll, lambda: log.append([record(3)]), lambda: log.truncate_to(1)):
        with pytest.raises(StorageError, match=r"must be opened again after this: .*cannot sync"):
            refused()
    assert log.in_doubt
    assert log.recovery_point == recovery_point
    assert numbers(log) == [1, 2]
    log.close()
    for seed in range(20):
        assert numbers(Partition(files.after_power_loss(seed)).open()) in ([1], [1, 2])


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("opened_file", [".index", ".timeindex"])
def test_a_flush_without_descriptors_is_done_later(code: int, opened_file: str) -> None:
    """Nothing was asked of the disk that it could have forgotten."""
    files, _, log = opened()
    files.forgets_failed_syncs = True
    log.append([record(1)])
    log.roll()
    log.append([record(2)])
    recovery_point = log.recovery_point
    files.refuse(code, operation="open", path=opened_file)
    with pytest.raises(StorageError, match=f"{opened_file}: cannot open"):
        log.flush()
    assert (log.in_doubt, log.recovery_point) == (False, recovery_point)
    log.append([record(3)])
    log.flush()
    assert log.recovery_point == 3
    for seed in range(20):
        assert numbers(Partition(files.after_power_loss(seed)).open()) == [1, 2, 3]


def test_an_append_that_cannot_be_flushed_for_lack_of_descriptors_is_the_last() -> None:
    """With flush.messages=1, a retry of an idempotent producer is not appended again, and must not be acknowledged."""
    log = Partition(files := CrashingFiles(), config=SMALL_SEGMENTS.with_overrides({"flush.messages": 2})).open()
    log.append([record(1)])
    log.roll()
    files.refuse(errno.EMFILE, operation="open", path="00000000000000000000.index")
    with pytest.raises(StorageError, match="Too many open files"):
        log.append([record(2)])
    assert log.in_doubt


def test_a_failed_background_sync_is_raised_at_the_next_append() -> None:
    files, partition, log = opened()
    log.append([record(1)])
    log.roll()
    files.refuse(errno.EIO, operation="sync", path=".log")
    with pytest.raises(StorageError, match="cannot sync"):
        partition.catch_up()
    with pytest.raises(StorageError, match=r"must be opened again after this: .*cannot sync"):
        log.append([record(2)])
    assert numbers(log) == [1]


def test_a_failed_append_leaves_no_trace_even_if_it_cannot_be_undone() -> None:
    for seed in range(30):
        files = CrashingFiles(seed=seed)
        partition = Partition(files)
        log = partition.open()
        log.append([record(1)])
        log.flush()
        files.refuse(errno.EIO, operation="append", path=".log")
        files.refuse(errno.EIO, operation="truncate", path=".log")
        with pytest.raises(StorageError, match=r"\.log: cannot append to"):
            log.append([record(2, 2000)])
        assert numbers(log) == [1]
        log.append([record(3)])
        log.flush()
        assert numbers(log) == [1, 3]
        assert numbers(Partition(files.after_power_loss(seed)).open()) == [1, 3]
        assert numbers(Partition(files.after_kill()).open()) == [1, 3]


def test_a_segment_that_cannot_be_made_is_made_by_the_next_append() -> None:
    files, partition, log = opened()
    log.append([record(1, 4000)])
    files.refuse(errno.EMFILE, operation="open", path="00000000000000000001.log")
    with pytest.raises(StorageError, match=r"00000000000000000001\.log: cannot open: Too many open files"):
        log.append([record(2, 4000)])
    assert numbers(log) == [1]
    log.append([record(2, 4000)])
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    partition.close(log)
    assert numbers(partition.open()) == [1, 2]


def test_a_failed_rename_does_not_keep_a_segment_alive() -> None:
    files, partition, log = opened()
    for number in range(40):
        log.append([record(number)])
    files.refuse(errno.EIO, operation="rename", path=".log")
    log.delete_records(30)
    with pytest.raises(StorageError, match="cannot rename to"):
        partition.delete_old_segments(log)
    assert numbers(log) == list(range(30, 40))
    log.append([record(40)])
    partition.close(log)
    reopened = partition.open()
    assert numbers(reopened) == list(range(30, 41))


def test_a_failed_read_is_reported_and_the_next_one_succeeds() -> None:
    files, _, log = opened()
    for number in range(3):
        log.append([record(number)])
    files.refuse(errno.EIO, operation="read", path=".log")
    with pytest.raises(StorageError, match=r"\.log: cannot read: Input/output error"):
        numbers(log)
    assert numbers(log) == [0, 1, 2]


def test_opening_may_fail_at_any_operation_and_then_succeed() -> None:
    files = CrashingFiles(seed=3)
    workload = Workload(files, 3)
    workload.run(STEPS)
    found = files.after_power_loss(5)
    expected = summary(Partition(found.after_kill()).open())
    failures = 0
    for number in range(200):
        disk = found.after_kill()
        disk.refuse(errno.EIO, skip=number)
        try:
            Partition(disk).open()
        except StorageError as error:
            check_told(error)
            failures += 1
            disk.stop_refusing()
            assert summary(Partition(disk).open()) == expected
    assert failures > 5
