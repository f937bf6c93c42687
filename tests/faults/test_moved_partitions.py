"""A crash at any point of a move to another directory leaves the partition whole, and the next start completes it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest

from duralog.config import BrokerConfig
from duralog.errors import StorageError
from duralog.format.record import Record
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost

PATHS = ["/disks/a", "/disks/b"]
CONFIG = BrokerConfig.of(
    {
        "internal.segment.bytes": 200,
        "log.index.size.max.bytes": 1024,
        "num.recovery.threads.per.data.dir": 1,
        "log.segment.delete.delay.ms": 0,
    }
)
WRITTEN = [b"value %d" % number for number in range(6)]
START = 2


def open_store(files: CrashingFiles, paths: list[str] = PATHS) -> tuple[Store, Scheduler]:
    scheduler = Scheduler(lambda: START_MS, threads=0)
    return Store(paths, config=CONFIG, scheduler=scheduler, file_system=files, clock=lambda: START_MS), scheduler


def written_disk() -> CrashingFiles:
    files = CrashingFiles()
    store, _ = open_store(files)
    with store:
        store.create_topic("orders", 2, {"retention.ms": -1})
        log = store.partition("orders", 0)
        for value in WRITTEN:
            log.append([Record(key=b"k", value=value, timestamp_ms=START_MS)])
        log.append([Record(value=b"p", timestamp_ms=START_MS)], producer_id=5, producer_epoch=0, base_sequence=0)
        log.delete_records(START)
    return files


def check(files: CrashingFiles) -> str:
    """Returns the directory of the partition after the next start, before that continues a move."""
    store, scheduler = open_store(files)
    with store:
        assert not store.offline
        found = store.directory_of("orders", 0)
        moves = store._moves.resume()
        log = store.partition("orders", 0)
        assert log.start_offset == START
        assert [record.value for record in log.read(START)] == [*WRITTEN[START:], b"p"]
        assert log.producer(5) is not None
        home = store.directory_of("orders", 0)
        for move in moves:
            assert home == PATHS[0]
            assert store._moves.run(move)
            home = store.directory_of("orders", 0)
            assert home == PATHS[1]
        log.append([Record(value=b"new", timestamp_ms=START_MS)])
        scheduler.run_due()
    store, scheduler = open_store(files)
    with store:
        assert store.directory_of("orders", 0) == home
        assert [record.value for record in store.partition("orders", 0).read(START)][-2:] == [b"p", b"new"]
        scheduler.run_due()
    folders = {path.rsplit("/", 2)[-2] for path in files.contents("/") if "/orders-0" in path}
    assert folders == {"orders-0"}
    return found


def moved_with(look: Callable[[CrashingFiles], None]) -> CrashingFiles:
    """A move, with a look at the disk after every change of it."""
    files = written_disk()
    store, scheduler = open_store(files)
    with store:
        files.on_change = partial(look, files)
        store.move_partition("orders", 0, PATHS[1])
        scheduler.run_due()
        files.on_change = None
    return files


def test_every_crash_leaves_the_partition_whole(randomised: int) -> None:
    total = change = 0
    homes: list[str] = []

    def count(_: CrashingFiles) -> None:
        nonlocal total
        total += 1

    def crash(files: CrashingFiles) -> None:
        nonlocal change
        change += 1
        if change % 9 == 0 or total - change < 36 or randomised > 1:
            # After a power loss, in some order of the writes that were not synced, or after a kill.
            homes.append(check(files.after_kill() if change % 3 == 0 else files.after_power_loss(change)))

    moved_with(count)
    files = moved_with(crash)
    assert (change, homes[0]) == (total, PATHS[0])
    assert check(files) == PATHS[1]
    assert homes == sorted(homes)
    assert homes[-1] == PATHS[1]


@pytest.mark.parametrize("directory", PATHS)
def test_an_error_at_any_point_leaves_the_partition_whole(directory: str, randomised: int) -> None:
    """After the metadata names the new directory, the partition waits for the next start."""
    outcomes: set[str] = set()
    disk = written_disk()
    for skip in range(0, 400, 13 if randomised == 1 else 1):
        files = disk.after_kill()
        store, scheduler = open_store(files)
        with store:
            files.refuse(errno.EIO, path=directory, skip=skip, times=2)
            try:
                store.move_partition("orders", 0, PATHS[1])
            except StorageError:
                outcomes.add("failed")
            else:
                outcomes.add("moved")
            has_refused = files.has_refused
            files.stop_refusing()
            scheduler.run_due()
            if not has_refused:
                break
        check_whole(files)
    assert outcomes == {"failed", "moved"}


def check_whole(files: CrashingFiles) -> None:
    store, scheduler = open_store(files.after_kill())
    with store:
        assert not store.offline
        log = store.partition("orders", 0)
        assert [record.value for record in log.read(START)] == [*WRITTEN[START:], b"p"]
        scheduler.run_due()


def test_power_is_lost_in_the_middle() -> None:
    disk = written_disk()
    for changes in range(1, 60, 15):
        files = disk.after_kill()
        store, _ = open_store(files)
        files.lose_power_after(changes)
        with pytest.raises(PowerLost):
            store.move_partition("orders", 0, PATHS[1])
        check(files.after_power_loss(changes))


def interrupted(files: CrashingFiles, config: dict[str, object], values: list[tuple[bytes, bytes | None]]) -> None:
    """A clean stop in the middle of a move leaves a copy that has all records so far."""
    store, _ = open_store(files)
    with store:
        store.create_topic("orders", 1, config)
        log = store.partition("orders", 0)
        for key, value in values:
            log.append([Record(key=key, value=value, timestamp_ms=START_MS)])
        move = store._moves.begin(log, PATHS[1])
        assert move is not None
        store._moves._copy(move, None)
        store._moves._is_stopping = True
        store._moves._end(move, is_done=False)
    assert any("-future/" in path for path in files.contents(PATHS[1]))


def resume(store: Store) -> None:
    (move,) = store._moves.resume()
    assert store._moves.run(move)
    assert store.directory_of("orders", 0) == PATHS[1]


def test_a_log_that_was_compacted_since_is_copied_again() -> None:
    """With an old copy, the tombstone would expire, and the value that it deletes would be there again."""
    files = CrashingFiles()
    config = {"cleanup.policy": "compact", "delete.retention.ms": 0}
    padding: list[tuple[bytes, bytes | None]] = [(b"%d" % number, b"x" * 100) for number in range(3)]
    interrupted(files, config, [(b"a", b"old"), *padding[:1], (b"a", None), *padding[1:]])
    store, _ = open_store(files)
    with store:
        store.partition("orders", 0).roll()
        store.compact("orders", 0)
    store, _ = open_store(files)
    with store:
        resume(store)
        log = store.partition("orders", 0)
        for _ in range(2):
            log.append([Record(key=b"z", value=b"z", timestamp_ms=START_MS)])
            log.roll()
            store.compact("orders", 0)
        assert [record.key for record in log.read(0)] == [b"0", b"1", b"2", b"z"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_was_cut_and_written_again_is_copied_again(is_clean: bool) -> None:
    files = CrashingFiles()
    interrupted(files, {"retention.ms": -1}, [(b"k", b"old %d" % number) for number in range(6)])
    store, _ = open_store(files)
    with store:
        log = store.partition("orders", 0)
        log.truncate_to(4)
        for number in range(4):
            log.append([Record(key=b"k", value=b"new %d" % number, timestamp_ms=START_MS)])
    if not is_clean:
        files.remove(f"{PATHS[0]}/.kafka_cleanshutdown")
    store, _ = open_store(files)
    with store:
        resume(store)
        found = [record.value for record in store.partition("orders", 0).read(0)]
        assert found == [b"old 0", b"old 1", b"old 2", b"old 3", b"new 0", b"new 1", b"new 2", b"new 3"]


def test_a_copy_that_does_not_have_all_records_does_not_take_their_place() -> None:
    """Kafka appends to the log after the metadata names the new directory. A crash then leaves this."""
    files = CrashingFiles()
    store, _ = open_store(files)
    with store:
        store.create_topic("orders", 1, {"retention.ms": -1})
        log = store.partition("orders", 0)
        log.append([Record(value=b"copied", timestamp_ms=START_MS)])
        move = store._moves.begin(log, PATHS[1])
        assert move is not None
        store._moves._copy(move, None)
        assert move.copy is not None
        move.copy.close()
        assert move.directory.directory_id is not None
        store._topics.assign_directories({move.partition: move.directory.directory_id})
        log.append([Record(value=b"later", timestamp_ms=START_MS)])
        log.flush()
        crashed = files.after_kill()
    store, _ = open_store(crashed)
    with store:
        assert [record.value for record in store.partition("orders", 0).read(0)] == [b"copied", b"later"]
        resume(store)
        assert [record.value for record in store.partition("orders", 0).read(0)] == [b"copied", b"later"]


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication", "cleaner"])
def test_a_partition_stays_if_the_other_directory_takes_no_checkpoint(name: str) -> None:
    files = CrashingFiles()
    store, scheduler = open_store(files)
    with store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact"})
        log = store.partition("orders", 0)
        for number in range(4):
            log.append([Record(key=b"k", value=b"%d" % number, timestamp_ms=START_MS)])
        log.roll()
        store.compact("orders", 0)
        log.append([Record(key=b"k", value=b"last", timestamp_ms=START_MS)])
        log.delete_records(4)
        files.refuse(errno.EIO, operation="write", path=f"{PATHS[1]}/{name}", times=None)
        with pytest.raises(StorageError, match=r"orders-0 cannot move to /disks/b: .*cannot write: Input/output error"):
            store.move_partition("orders", 0, PATHS[1])
        scheduler.run_due()
        assert [directory.failure is None for directory in store.log_directories] == [True, False]
        assert store.offline == {}
        assert [record.value for record in log.read(4)] == [b"last"]
        with pytest.raises(StorageError, match="which is offline"):
            store.move_partition("orders", 0, PATHS[1])
