"""Who may write to a directory that a job has lent to its tasks. Other processes are real ones."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duralog.errors import StorageError, StoreLocked
from duralog.storage.disk.lent_lock import LentLock, SlotState, borrowed
from duralog.storage.disk.local_lock import LocalLock
from tests.support.forked_child import in_child

JOB = "a" * 32
OTHER_JOB = "b" * 32

BORROWER = """
import sys
from duralog.storage.disk.lent_lock import SlotState, borrowed
path, job, slot = sys.argv[1:]
with borrowed(path, job, int(slot)) as lock:
    found = lock.state
    lock.put_state(SlotState.BORROWED)
    print(found.name, flush=True)
    sys.stdin.read()
    lock.put_state(SlotState.RETURNED)
"""
LENDER = """
import sys, time
from duralog.storage.disk.lent_lock import LentLock
from duralog.storage.disk.local_lock import LocalLock
lent = LentLock(LocalLock(sys.argv[1]), sys.argv[2], 1)
print("lent", flush=True)
time.sleep(600)
"""
LOCKER = """
import sys
from duralog.errors import StoreLocked
from duralog.storage.disk.local_lock import LocalLock
try:
    LocalLock(sys.argv[1])
except StoreLocked:
    print("refused")
else:
    print("granted")
"""


@contextmanager
def borrower(path: Path, job: str, slot: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has the slot until its standard input ends."""
    command = [sys.executable, "-c", BORROWER, str(path), job, str(slot)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def state_found(process: subprocess.Popen[str]) -> str:
    """Waits until the process has its slot."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def asks_for_the_directory(path: Path) -> str:
    """The error for another process that wants the directory for itself, as a store or Kafka does."""
    done = subprocess.run([sys.executable, "-c", LOCKER, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def lent(path: Path) -> Iterator[LentLock]:
    lock = LentLock(LocalLock(str(path)), JOB, slots=3)
    yield lock
    lock.release()


def test_a_lent_directory_is_locked_for_others(path: Path, lent: LentLock) -> None:
    assert asks_for_the_directory(path) == "refused"
    with pytest.raises(StoreLocked, match="this process has already opened it"):
        LocalLock(str(path))


def test_tasks_have_different_partitions_at_the_same_time(path: Path, lent: LentLock) -> None:
    with borrower(path, JOB, 0) as first, borrower(path, JOB, 2) as second:
        assert [state_found(first), state_found(second)] == ["AS_FOUND", "AS_FOUND"]
        assert lent.states() == [SlotState.BORROWED, SlotState.AS_FOUND, SlotState.BORROWED]
        first.communicate()
        assert lent.states()[0] is SlotState.RETURNED


def test_a_second_attempt_waits_and_learns_how_the_first_one_ended(path: Path, lent: LentLock) -> None:
    with borrower(path, JOB, 1) as first:
        assert state_found(first) == "AS_FOUND"
        with borrower(path, JOB, 1) as second:
            first.kill()
            first.wait()
            assert state_found(second) == "BORROWED"
            second.communicate()
    with borrowed(str(path), JOB, 1) as lock:
        assert lock.state is SlotState.RETURNED


def test_threads_of_the_lender_wait_for_each_other_too(path: Path, lent: LentLock) -> None:
    found: list[str] = []

    def second() -> None:
        with borrowed(str(path), JOB, 0):
            found.append("second")

    with borrowed(str(path), JOB, 0):
        thread = threading.Thread(target=second)
        thread.start()
        found.append("first")
    thread.join()
    assert found == ["first", "second"]
    assert asks_for_the_directory(path) == "refused", "the lender's own lock must have outlived them"


def test_a_task_of_another_job_is_refused(path: Path, lent: LentLock) -> None:
    with pytest.raises(StoreLocked, match="does not hold the directory"), borrowed(str(path), OTHER_JOB, 0):
        pass
    assert asks_for_the_directory(path) == "refused"


def test_a_task_that_comes_late_is_refused(path: Path) -> None:
    lent = LentLock(LocalLock(str(path)), JOB, slots=1)
    lent.take_back(0)
    lent.release()
    assert path.read_bytes() == b""
    with pytest.raises(StoreLocked, match="the job has ended"), borrowed(str(path), JOB, 0):
        pass


def test_a_task_whose_lender_died_is_refused(path: Path) -> None:
    """The id is still there: a broker that has had the directory since leaves it."""
    with subprocess.Popen([sys.executable, "-c", LENDER, str(path), JOB], stdout=subprocess.PIPE, text=True) as lender:
        assert state_found(lender) == "lent"
        with borrower(path, JOB, 0) as task:
            assert state_found(task) == "AS_FOUND"
        lender.kill()
    assert path.read_bytes().startswith(JOB.encode())
    with (
        pytest.raises(StoreLocked, match="directory: the job has ended"),
        borrowed(str(path), JOB, 0),
    ):
        pass


def test_a_host_without_the_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreLocked, match="all executors share"), borrowed(str(tmp_path / "none" / ".lock"), JOB, 0):
        pass


def test_a_store_in_a_worker_is_refused_and_costs_the_task_nothing(path: Path) -> None:
    """Were the file opened again and closed, the task's lock would be gone."""
    program = f"""
import sys
from duralog.errors import StoreLocked
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.disk.lent_lock import borrowed
with borrowed({str(path)!r}, {JOB!r}, 0):
    try:
        LocalLock({str(path)!r})
    except StoreLocked:
        print("refused", flush=True)
    sys.stdin.read()
"""
    lent = LentLock(LocalLock(str(path)), JOB, slots=1)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert state_found(process) == "refused"
        lent.release()
        assert asks_for_the_directory(path) == "refused"
    finally:
        process.communicate()
    assert asks_for_the_directory(path) == "granted"


def test_a_directory_stays_locked_until_its_last_task_is_gone(path: Path) -> None:
    """The lender may die, which a release without `take_back` comes to."""
    lent = LentLock(LocalLock(str(path)), JOB, slots=1)
    with borrower(path, JOB, 0) as task:
        state_found(task)
        lent.release()
        assert asks_for_the_directory(path) == "refused"
        with pytest.raises(StoreLocked, match="another process has it locked"):
            LocalLock(str(path))
        task.communicate()
    assert asks_for_the_directory(path) == "granted"


def test_the_lender_waits_for_its_tasks(path: Path, lent: LentLock) -> None:
    with borrower(path, JOB, 0) as task:
        state_found(task)
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            task.communicate()

        lent.take_back(60, wait)
        assert len(waits) == 1
    with pytest.raises(StoreLocked, match="does not hold"), borrowed(str(path), OTHER_JOB, 0):
        pass


def test_the_lender_does_not_wait_for_ever(path: Path, lent: LentLock) -> None:
    with borrowed(str(path), JOB, 0), pytest.raises(StorageError, match="still running after 0 s"):
        lent.take_back(0)


def test_a_forked_child_has_neither_the_lenders_lock_nor_the_tasks(path: Path, lent: LentLock) -> None:
    with borrowed(str(path), JOB, 0) as lock:
        lock.put_state(SlotState.BORROWED)
        calls: list[Callable[[], object]] = [
            lambda: lock.put_state(SlotState.RETURNED),
            lambda: lock.state,
            lock.check,
            lock.changing_checkpoints().__enter__,
            lent.states,
            lambda: lent.take_back(0),
        ]
        for call in calls:
            assert "opened it" in in_child(call)
        assert in_child(lent.release) == "None"
        assert lent.states()[0] is SlotState.BORROWED
        assert asks_for_the_directory(path) == "refused"
    with borrowed(str(path), JOB, 0):
        pass


def test_a_forked_child_is_a_task_as_any_other(path: Path, lent: LentLock) -> None:
    def task() -> str:
        with borrowed(str(path), JOB, 1) as lock:
            lock.put_state(SlotState.RETURNED)
            return lock.state.name

    with borrowed(str(path), JOB, 0):
        assert in_child(task) == "RETURNED"
    assert lent.states()[1] is SlotState.RETURNED


def test_a_plain_lock_forgets_a_job_that_died(path: Path) -> None:
    path.write_bytes(JOB.encode() + b"\n..")
    lock = LocalLock(str(path))
    assert path.stat().st_size == 0
    lock.release()
