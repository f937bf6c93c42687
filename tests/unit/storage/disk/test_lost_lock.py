"""`.lock` is removed while a store is open: a second writer may lock a new one, so the first one stops writing."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import duralog
from duralog.errors import StorageError
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.lent_lock import LentLock, borrowed
from duralog.storage.disk.local_lock import LocalLock, LockLost
from duralog.storage.store import Store
from tests.support.storage.store_directory import MARKER, Clock, Directory, contents, records, values

REMOVED = r"data/\.lock: the lock file was removed, so other writers are no longer kept out"
REPLACED = r"data/\.lock: the lock file was removed, and another process has created a new one"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    yield directory
    for store in directory.opened:
        with suppress(StorageError):
            store.close()


@pytest.fixture
def store(directory: Directory) -> Store:
    store = directory.open({"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 1})
    store.create_topic("orders", 1)
    store.create_topic("payments", 1)
    for topic in ("orders", "payments"):
        store.partition(topic, 0).append(records("a", "b"))
    return store


def remove_lock(directory: Directory) -> dict[str, bytes]:
    """Returns what the directory holds after that."""
    (directory.path / ".lock").unlink()
    return contents(directory.path)


def fill_the_segment(store: Store) -> None:
    for _ in range(100):
        store.partition("orders", 0).append(records("x" * 50_000))


NOTICED: dict[str, Callable[[Store], object]] = {
    "flush": lambda store: store.partition("orders", 0).flush(),
    "roll": lambda store: store.partition("orders", 0).roll(),
    "full segment": fill_the_segment,
    "new topic": lambda store: store.create_topic("new", 1),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("moment", NOTICED)
def test_it_is_noticed(directory: Directory, store: Store, moment: str) -> None:
    remove_lock(directory)
    with pytest.raises(StorageError, match=REMOVED):
        NOTICED[moment](store)
    if moment != "close":
        with pytest.raises(StorageError, match=REMOVED):
            store.close()
    assert not (directory.path / MARKER).exists()


def test_it_is_noticed_within_a_second_and_nothing_is_written_from_then_on(directory: Directory, store: Store) -> None:
    log, other = store.partition("orders", 0), store.partition("payments", 0)
    before = remove_lock(directory)
    directory.pass_time(1000)
    (error,) = store.background_errors
    assert "check of the lock" in str(error)
    assert "Make sure that only one process writes to the directory, then open it again" in str(error)
    changes: list[Callable[[], object]] = [
        lambda: log.append(records("c")),
        lambda: other.append(records("c")),
        log.flush,
        log.roll,
        lambda: log.delete_records(1),
        lambda: store.create_topic("new", 1),
        lambda: store.delete_topic("orders"),
        store.apply_retention,
        lambda: store.compact("orders", 0),
    ]
    for change in changes:
        with pytest.raises(StorageError, match=REMOVED):
            change()
    directory.pass_time(3_600_000)
    assert len(store.background_errors) == 1
    # What is there can be read, without a change to any file.
    assert values(store, "orders") == ["a", "b"]
    assert log.offset_for_timestamp(0) is not None
    with pytest.raises(StorageError, match=REMOVED):
        store.close()
    store.close()
    assert contents(directory.path) == before
    again = directory.open()
    assert values(again, "orders") == values(again, "payments") == ["a", "b"]


SECOND_WRITER = """
import sys, duralog
with duralog.open(sys.argv[1], {"log.index.size.max.bytes": 4096}) as store:
    log = store.partition("orders", 0)
    for number in range(100):
        log.append([duralog.Record(value=b"second")])
    log.flush()
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_second_writer_loses_nothing_to_the_first(directory: Directory, store: Store) -> None:
    """Without the check, closing the first one would cut the files that the second one has mapped, and mark them."""
    store.partition("orders", 0).flush()
    remove_lock(directory)
    command = [sys.executable, "-c", SECOND_WRITER, str(directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match=REPLACED):
            store.partition("orders", 0).roll()
        with pytest.raises(StorageError, match=REPLACED):
            store.close()
        assert not (directory.path / MARKER).exists()
        assert second.communicate("")[0] == ""
        assert second.returncode == 0
    assert (directory.path / MARKER).exists()
    again = directory.open()
    assert values(again, "orders")[:2] == ["a", "b"]
    assert values(again, "orders").count("second") == 100


def test_the_threads_of_the_store_end(directory: Directory) -> None:
    store = duralog.open(directory.path)
    threads = [*store._scheduler._threads, *store._cleaner_scheduler._threads]
    assert len(threads) == 3
    remove_lock(directory)
    with pytest.raises(LockLost, match=REMOVED):
        store._check_lock()
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(StorageError, match=REMOVED):
        store.close()


def test_a_process_that_changes_its_working_directory_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lock = LocalLock(".lock")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    lock.check()
    lock.release()


def test_a_file_that_is_removed_between_opening_and_locking_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    lockf = fcntl.lockf
    removals = 2

    def remove_first(descriptor: int, kind: int) -> None:
        nonlocal removals
        lockf(descriptor, kind)
        if removals:
            removals -= 1
            path.unlink()

    monkeypatch.setattr(fcntl, "lockf", remove_first)
    lock = LocalFileSystem().lock(str(path))
    monkeypatch.undo()
    lock.check()
    held = "import fcntl, sys\nfcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    other = subprocess.run([sys.executable, "-c", held, str(path)], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr
    lock.release()


def test_a_task_notices_it_too(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lent = LentLock(LocalLock(str(path)), "a" * 32, slots=1)
    with borrowed(str(path), "a" * 32, 0) as lock:
        lock.check()
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(LockLost, match="was removed, so"):
            lock.check()
        path.touch()
        with pytest.raises(LockLost, match="created a new one"):
            lock.check()
    lent.release()
