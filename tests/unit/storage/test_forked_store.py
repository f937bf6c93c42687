"""A process forks while it has a store open: the store stays the parent's, whatever the child does with its copy."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

import pytest

import duralog
from duralog.errors import StorageError
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.store import Store
from tests.support.forked_child import fork, in_child
from tests.support.storage.store_directory import MARKER, contents, records, values

CONFIG = {
    "log.index.size.max.bytes": 4096,
    "log.index.interval.bytes": 1,
    "replica.high.watermark.checkpoint.interval.ms": 3_600_000,
}
"""Nothing is written by itself while a test compares files, however long that takes."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with duralog.open(path, CONFIG) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact,delete"})
        store.partition("orders", 0).append(records("a", "b", "c"))
        yield store


inherited: Store
"""For the functions that a pool of processes calls by name."""


def append_in_worker(number: int) -> str:
    try:
        log = inherited.partition("orders", 0)
        log.append(records(f"worker-{number}"))
        log.flush()
    except StorageError as error:
        return str(error)
    return "written"


def test_a_pool_of_processes_cannot_append_to_the_store_of_its_parent(store: Store) -> None:
    global inherited
    inherited = store
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            answers = pool.map(append_in_worker, range(8))
            pool.close()
            pool.join()
    for answer in answers:
        assert f"process {os.getpid()} opened it" in answer
        assert "open the directory in this process" in answer
        assert "read_only=True" in answer
    assert values(store, "orders") == ["a", "b", "c"]
    assert store.partition("orders", 0).append(records("d")).base_offset == 3


CHANGES: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.partition("orders", 0).append(records("x")),
    "create a topic": lambda store: store.create_topic("payments", 1),
    "delete a topic": lambda store: store.delete_topic("orders"),
    "alter a topic": lambda store: store.alter_topic_config("orders", {"retention.ms": 5}),
    "take producer ids": lambda store: store.take_producer_ids(),
    "retain": lambda store: store.apply_retention(),
    "compact": lambda store: store.compact("orders", 0),
}


def test_a_child_changes_nothing_through_the_store_of_its_parent(store: Store, path: Path) -> None:
    before = contents(path)
    for change in CHANGES.values():
        answer = in_child(partial(change, store))
        assert answer.startswith("StorageError: ")
        assert f"process {os.getpid()} opened it" in answer
    assert contents(path) == before


LOG_CALLS: dict[str, Callable[[duralog.PartitionLog], object]] = {
    "append": lambda log: log.append(records("x")),
    "append batches": lambda log: log.append_batches(b"anything"),
    "roll": lambda log: log.roll(),
    "delete records": lambda log: log.delete_records(1),
    "truncate": lambda log: log.truncate_to(0),
    "producers": lambda log: log.producers(),
    "expire producers": lambda log: log.expire_producers(),
    "read": lambda log: list(log.read(0)),
    "read Arrow": lambda log: log.read_arrow(),
    "end": lambda log: log.end_offset,
    "look up a time": lambda log: log.offset_for_timestamp(0),
}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_log_that_was_opened_before_the_fork_is_refused(path: Path, store: Store, read_only: bool) -> None:
    with duralog.open(path, read_only=True) if read_only else nullcontext(store) as opened:
        log = opened.partition("orders", 0)
        before = contents(path)
        for call in LOG_CALLS.values():
            answer = in_child(partial(call, log))
            assert answer.startswith("StorageError: ")
            assert f"process {os.getpid()} opened it" in answer
        assert in_child(lambda: opened.partition("orders", 0)).startswith("StorageError: ")
        assert in_child(opened.close) == "None"
        assert contents(path) == before
        assert len(list(log.read(0))) == 3


def test_a_child_can_show_what_it_has_inherited(store: Store) -> None:
    log = store.partition("orders", 0)
    assert f"process {os.getpid()}" in in_child(lambda: f"{log!r} {store._repr_html_()}")
    assert in_child(lambda: (store.topics(), store.logs, store.cleaner.states(), store.background_errors)) == (
        "(['orders'], {}, [], ())"
    )


@pytest.mark.parametrize("read_only", [False, True])
def test_an_iterator_that_was_begun_before_the_fork_is_refused(path: Path, store: Store, read_only: bool) -> None:
    log = store.partition("orders", 0)
    for _ in range(200):
        log.append([duralog.Record(key=b"k", value=bytes(10_000))])
    with duralog.open(path, read_only=True) if read_only else nullcontext(store) as opened:
        reading = opened.partition("orders", 0).read(0)
        assert next(reading).value == b"a"
        answer = in_child(lambda: len(list(reading)))
        assert f"process {os.getpid()} opened it" in answer
        assert len(list(reading)) == 202


# The end of a child


def end_by_closing(store: Store) -> None:
    store.close()
    store.close()


def end_by_leaving_the_block(store: Store) -> None:
    with store:
        pass


def test_closing_in_a_child_changes_no_file(store: Store, path: Path) -> None:
    log = store.partition("orders", 0)
    before = contents(path)
    for end in (end_by_closing, end_by_leaving_the_block, lambda _: log.close()):
        assert in_child(partial(end, store)) == "None"
        assert contents(path) == before
    # The indexes are mapped: if the child had cut them, this would be the end of this process.
    for number in range(300):
        log.append(records(f"{number}"))
    assert log.end_offset == 303


def test_closing_in_a_child_closes_the_descriptors_that_it_has_inherited(store: Store, path: Path) -> None:
    def open_files() -> list[str]:
        return [target for target in open_targets() if target.startswith(str(path))]

    def close() -> list[str]:
        store.close()
        return open_files()

    assert len(open_files()) > 3
    assert in_child(close) == "[]"


def open_targets() -> list[str]:
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # The one that listed the others.
    return sorted(targets)


SCRIPT = """
import atexit, os, sys, warnings
import duralog
warnings.simplefilter("ignore", DeprecationWarning)
path, end = sys.argv[1:]
store = duralog.open(path, {"log.index.size.max.bytes": 4096, "log.index.interval.bytes": 1})
store.create_topic("orders", 1)
log = store.partition("orders", 0)
for kind in ("os._exit", "sys.exit", "with", "atexit"):
    for number in range(300):
        log.append([duralog.Record(value=b"%d" % number)])
    log.flush()
    if kind == "atexit":
        atexit.register(store.close)
    child = os.fork()
    if child == 0:
        try:
            log.append([duralog.Record(value=b"from the child")])
        except duralog.StorageError as error:
            pass
        if kind == "os._exit":
            os._exit(0)
        if kind == "with":
            with store:
                sys.exit(0)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not os.path.exists(os.path.join(path, ".kafka_cleanshutdown"))
log.append([duralog.Record(value=b"last")])
if end == "killed":
    if os.fork() == 0:
        os.setsid()
        sys.stdin.read()  # It outlives its parent.
        sys.exit(0)
    os._exit(9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_nothing_is_lost_however_the_children_end(path: Path, end: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(path), end]
    # The last child has its parent's standard input and output, and lives until the former ends.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as parent:
        assert parent.wait(120) == (9 if end == "killed" else 0)
        assert (path / MARKER).exists() == (end == "closed")
        # A child that outlives its parent does not keep the directory locked.
        with duralog.open(path) as store:
            assert values(store, "orders") == [str(number) for number in range(300)] * 4 + ["last"]
        assert parent.communicate()[0] == ""


# The lock


def test_the_lock_stays_the_parents(store: Store, path: Path) -> None:
    def let_go_of_everything() -> None:
        store.close()
        for name in os.listdir("/proc/self/fd"):
            try:
                fcntl.lockf(int(name), fcntl.LOCK_UN)
                is_lock = os.readlink(f"/proc/self/fd/{name}").endswith(".lock")
            except OSError:
                continue
            if is_lock:
                os.close(int(name))

    assert in_child(let_go_of_everything) == "None"
    assert is_locked(path)


def is_locked(path: Path) -> bool:
    """Whether another process finds the directory locked."""
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-S", "-c", program, str(path / ".lock")]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_the_child_has_no_descriptor_of_the_lock_nor_has_another_program(store: Store, path: Path) -> None:
    def inherited_locks() -> list[str]:
        return [target for target in open_targets() if target.startswith(str(path)) and target.endswith(".lock")]

    assert len(inherited_locks()) == 1
    assert in_child(inherited_locks) == "[]"
    shown = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    assert str(path) not in shown.stdout


def test_a_child_opens_the_directory_itself(store: Store, path: Path) -> None:
    def read() -> list[str]:
        with duralog.open(path, read_only=True) as mine:
            return values(mine, "orders")

    def write() -> int:
        with duralog.open(path) as mine:
            # Closing what was inherited must not release this lock, too.
            store.close()
            assert is_locked(path)
            return mine.partition("orders", 0).append(records("d")).base_offset

    assert in_child(read) == "['a', 'b', 'c']"
    assert "StoreLocked: " in in_child(write)
    store.close()
    assert not is_locked(path)
    assert in_child(write) == "3"
    with duralog.open(path) as again:
        assert values(again, "orders") == ["a", "b", "c", "d"]


# Other threads


@pytest.mark.slow
def test_locks_that_other_threads_hold_at_the_fork_do_not_matter(store: Store, path: Path) -> None:
    log = store.partition("orders", 0)
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        locks = [log._writer.lock, log._writer.flushing, store._open.changing, LocalLock.guard]
        locks += [store._scheduler._changed, store._cleaner_scheduler._changed, store.cleaner._claims._changed]
        locks += [segment._opening for segment in log.view.segments]
        with ExitStack() as held:
            for lock in locks:
                held.enter_context(lock)
            is_held.set()
            may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        for call in LOG_CALLS.values():
            assert "opened it" in in_child(partial(call, log))
        for change in CHANGES.values():
            assert "opened it" in in_child(partial(change, store))
        for end in (end_by_closing, end_by_leaving_the_block):
            assert in_child(partial(end, store)) == "None"
        assert in_child(log.close) == "None"
        assert in_child(store.cleaner.stop) == "None"
        assert in_child(lambda: duralog.open(path, read_only=True).topics()) == "['orders']"
        assert "StoreLocked" in in_child(lambda: duralog.open(path))
    finally:
        may_end.set()
        thread.join()


def test_the_parent_continues_appending_while_children_come_and_go(store: Store) -> None:
    log = store.partition("orders", 0)
    children: list[int] = []
    is_enough = threading.Event()

    def append() -> None:
        while not is_enough.is_set():
            log.append(records("more"))
            log.flush()

    thread = threading.Thread(target=append)
    thread.start()
    try:
        for _ in range(10):
            child = fork()
            if child == 0:
                try:
                    log.append(records("from a child"))
                    log.close()
                except StorageError:
                    store.close()
                    os._exit(3)
                os._exit(4)
            children.append(child)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [3] * 10
    finally:
        is_enough.set()
        thread.join()
    read = values(store, "orders")
    assert len(read) == log.end_offset
    assert set(read[3:]) == {"more"}


def test_a_grandchild_is_refused_as_its_parent_is(store: Store) -> None:
    answer = in_child(lambda: in_child(lambda: store.partition("orders", 0).append(records("x"))))
    assert f"process {os.getpid()} opened it" in answer


def test_a_compaction_that_ends_in_a_child_removes_nothing(path: Path) -> None:
    """It forks in the progress callback, so the child is in the middle of it, too."""
    with duralog.open(path, {**CONFIG, "log.cleaner.enable": False}) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact"})
        log = store.partition("orders", 0)
        for _ in range(3):
            log.append(records(*"abcdefgh"))
            log.roll()
        children: list[int] = []
        mine = os.getpid()

        def show(_: object) -> None:
            if os.getpid() == mine and not children:
                children.append(fork())
                if children[0] == 0:
                    raise KeyboardInterrupt

        try:
            report = store.compact("orders", 0, on_progress=show)
        except BaseException:
            if os.getpid() == mine:
                raise
            os._exit(0)
        assert len(children) == 1
        os.waitpid(children[0], 0)
        assert (report.records_before, report.records_after) == (24, 8)
        assert sorted(values(store, "orders")) == list("abcdefgh")
