"""The machine dies at every change that a commit makes to the disk: the write is there whole, once, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from duralog.errors import DuralogError
from duralog.format.record import Record
from duralog.spark.sink.commit import commit, recover
from duralog.spark.sink.staging import StagedTask
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.storage.store import Store
from tests.support.faults.crashing_files import CrashingFiles
from tests.support.spark.staged_writes import NOW_MS, WRITER, options_of, rows_of, stage, values_in

PATH = "/data"
OLD = AppVersion(application="query 1", version=6)
NEW = AppVersion(application="query 1", version=7)
PARTITIONS = 2


def options(**others: object) -> WriteOptions:
    store = {"store.num.recovery.threads.per.data.dir": 1, "store.log.index.size.max.bytes": 1024}
    return options_of(PATH, partitions=PARTITIONS, batchSize=200, codec="lz4", **store, **others)


def rows(label: str, *, first_offset: int = 0) -> list[list[object]]:
    """Two tasks, whose rows make several batches in every partition."""
    tasks: list[list[object]] = []
    for task in range(2):
        numbers = range(40 * task, 40 * task + 40)
        tasks.append(
            [
                rows_of(
                    topic=["t"] * 40,
                    partition=[number % PARTITIONS for number in numbers],
                    key=[b"%d" % number for number in numbers],
                    value=[f"{label} {number} ".encode() * 3 for number in numbers],
                    offset=[first_offset + 3 * number for number in numbers],
                )
            ]
        )
    return tasks


def expected(*labels: str) -> dict[tuple[str, int], list[bytes]]:
    return {
        ("t", partition): [
            f"{label} {number} ".encode() * 3 for label in labels for number in range(partition, 80, PARTITIONS)
        ]
        for partition in range(PARTITIONS)
    }


def append(disk: CrashingFiles, staged: list[StagedTask], chosen: WriteOptions, transaction: AppVersion) -> None:
    commit(
        staged,
        chosen,
        writer=WRITER,
        batch=transaction.version,
        transaction=transaction,
        file_system=disk,
        clock=lambda: NOW_MS,
    )


def complete(disk: CrashingFiles) -> bool:
    return recover(PATH, config=options().broker_config(), file_system=disk, clock=lambda: NOW_MS)


def crashes_of(work: Callable[[CrashingFiles], object], disk: CrashingFiles, *, every: int = 1) -> list[CrashingFiles]:
    """The disks that may be found after a crash at each change that the work makes, and at its end."""
    found: list[CrashingFiles] = []

    def look() -> None:
        if disk.changes % every:
            return
        found.append(disk.after_kill())
        found.append(disk.after_power_loss(disk.changes))

    disk.on_change = look
    work(disk)
    disk.on_change = None
    look()
    return found


def first_write(chosen: WriteOptions) -> CrashingFiles:
    disk = CrashingFiles(clock=lambda: NOW_MS)
    append(disk, stage(chosen, rows("old"), batch=6, files=disk), chosen, OLD)
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("is_restored", [False, True])
def test_a_repeated_micro_batch_is_there_once(is_restored: bool) -> None:
    chosen = options(preserveOffsets=is_restored)
    disk = first_write(chosen)
    staged = stage(chosen, rows("new", first_offset=1000), batch=7, files=disk)
    crashed = crashes_of(lambda disk: append(disk, staged, chosen, NEW), disk)
    assert len(crashed) > 100
    for found in crashed:
        again = stage(chosen, rows("new", first_offset=1000), batch=7, files=found)
        append(found, again, chosen, NEW)
        assert values_in(PATH, found) == expected("old", "new")
        assert not [entry.name for entry in found.list(PATH) if entry.name.endswith((".staged", ".journal"))]


def test_a_backup_comes_back_once_into_an_empty_directory() -> None:
    chosen = options(preserveOffsets=True)
    disk = CrashingFiles(clock=lambda: NOW_MS)
    staged = stage(chosen, rows("new", first_offset=1000), batch=7, files=disk)
    crashed = crashes_of(lambda disk: append(disk, staged, chosen, NEW), disk, every=5)
    assert len(crashed) > 20
    for found in crashed:
        append(found, stage(chosen, rows("new", first_offset=1000), batch=7, files=found), chosen, NEW)
        assert values_in(PATH, found) == expected("new")
        with Store(PATH, read_only=True, file_system=found) as store:
            logs = [store.partition("t", number) for number in range(PARTITIONS)]
            assert [(log.start_offset, log.end_offset) for log in logs] == [(1000, 1235), (1003, 1238)]


def test_a_write_that_is_not_repeated_is_complete_or_absent() -> None:
    chosen = options()
    disk = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=disk)
    crashed = crashes_of(lambda disk: append(disk, staged, chosen, NEW), disk)
    outcomes = set()
    for found in crashed:
        was_decided = complete(found)
        values = values_in(PATH, found)
        assert values in (expected("old"), expected("old", "new"))
        is_there = values == expected("old", "new")
        assert is_there or not was_decided
        outcomes.add((was_decided, is_there))
        assert complete(found) is False
    assert outcomes == {(False, False), (True, True), (False, True)}


def test_a_crash_while_a_write_is_completed() -> None:
    """The crash after the crash."""
    chosen = options()
    disk = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=disk)
    halfway = [
        found
        for found in crashes_of(lambda disk: append(disk, staged, chosen, NEW), disk)
        if found.exists(f"{PATH}/duralog-sink.journal") and values_in(PATH, found) != expected("old", "new")
    ]
    assert len(halfway) > 10
    for found in (halfway[0], halfway[len(halfway) // 2], halfway[-1]):
        for again in crashes_of(complete, found, every=2):
            was_decided = complete(again)
            values = values_in(PATH, again)
            # The first process may have died before the journal's name was on disk.
            assert values == expected("old", "new") or (values == expected("old") and not was_decided)


def test_others_may_append_before_it_is_completed() -> None:
    chosen = options()
    disk = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=disk)
    whole = 0
    for found in crashes_of(lambda disk: append(disk, staged, chosen, NEW), disk):
        if not found.exists(f"{PATH}/duralog-sink.journal"):
            continue
        with Store(PATH, file_system=found, clock=lambda: NOW_MS) as store:
            store.partition("t", 0).append([Record(value=b"another's")])
        complete(found)
        values = values_in(PATH, found)
        assert values[("t", 0)].count(b"another's") == 1
        values[("t", 0)].remove(b"another's")
        assert values == expected("old", "new")
        whole += 1
    assert whole > 20


def test_a_full_disk_while_batches_are_appended() -> None:
    chosen = options()
    disk = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=disk)
    disk.refuse(28, operation="append", path="/t-1/", times=None)
    with pytest.raises(
        DuralogError, match=r"the write is decided, .* No space left .*Nothing of it is lost: .*recover"
    ):
        append(disk, staged, chosen, NEW)
    # As long as it is full, the write stays decided, and nobody is told to give it up.
    for again in (complete, lambda disk: append(disk, staged, chosen, NEW)):
        with pytest.raises(DuralogError, match=r"could not be completed now: .* nothing of it is lost") as told:
            again(disk)
        assert "abandon" not in str(told.value)
    disk.stop_refusing()
    assert complete(disk)
    assert values_in(PATH, disk) == expected("old", "new")


@pytest.mark.parametrize("room", [0, 300, 2000, 5000])
def test_a_disk_that_fills_up(room: int) -> None:
    chosen = options()
    disk = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=disk)
    disk.capacity_bytes = disk.used_bytes + room
    with pytest.raises(DuralogError, match="No space left"):
        append(disk, staged, chosen, NEW)
    disk.capacity_bytes = None
    append(disk, stage(chosen, rows("new"), batch=7, files=disk), chosen, NEW)
    assert values_in(PATH, disk) == expected("old", "new")


def test_an_error_says_whether_the_rows_will_be_there() -> None:
    """A write without a name would be duplicated if it counted as undone."""
    chosen = options()
    before = first_write(chosen)
    staged = stage(chosen, rows("new"), batch=7, files=before)
    outcomes = set()
    for skip in range(0, 1000, 5):
        disk = before.after_kill()
        disk.refuse(28, skip=skip, times=None)
        error = ""
        try:
            commit(staged, chosen, writer=WRITER, batch=7, file_system=disk, clock=lambda: NOW_MS)
        except DuralogError as caught:
            error = str(caught)
        has_refused = disk.has_refused
        disk.stop_refusing()
        complete(disk)
        is_there = values_in(PATH, disk) == expected("old", "new")
        assert is_there or values_in(PATH, disk) == expected("old")
        assert is_there == (not error or "Do not write the rows again" in error), error
        outcomes.add((is_there, bool(error)))
        if not has_refused:
            break
    assert outcomes == {(False, True), (True, True), (True, False)}
