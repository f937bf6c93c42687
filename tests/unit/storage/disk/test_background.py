"""Tasks run when they are due, failures stay visible, and stopping is quick and final."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from duralog.errors import StorageError
from duralog.storage.disk.background import BackgroundError, Scheduler


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scheduler(clock: Clock) -> Scheduler:
    """One without threads: the test runs what is due."""
    return Scheduler(clock, threads=0)


@pytest.fixture
def threaded() -> Iterator[Scheduler]:
    scheduler = Scheduler(threads=2)
    yield scheduler
    scheduler.stop()


def test_a_task_runs_once_after_its_delay(clock: Clock, scheduler: Scheduler) -> None:
    ran: list[int] = []
    scheduler.after(50, "late", lambda: ran.append(clock.now_ms))
    clock.now_ms += 49
    assert scheduler.run_due() == 0
    clock.now_ms += 1
    assert scheduler.run_due() == 1
    clock.now_ms += 1000
    assert scheduler.run_due() == 0
    assert ran == [1_050]


def test_a_repeated_task_is_due_an_interval_after_it_ended(clock: Clock, scheduler: Scheduler) -> None:
    ran: list[int] = []

    def slow() -> None:
        ran.append(clock.now_ms)
        clock.now_ms += 7

    scheduler.every(100, "again", slow, first_after_ms=30)
    for _ in range(300):
        clock.now_ms += 1
        scheduler.run_due()
    assert ran == [1_030, 1_137, 1_244]


def test_tasks_that_are_due_together_run_in_the_order_they_came_in(scheduler: Scheduler) -> None:
    ran: list[int] = []
    for number in range(5):
        scheduler.after(0, "task", lambda number=number: ran.append(number))  # type: ignore[misc]
    scheduler.run_due()
    assert ran == [0, 1, 2, 3, 4]


def test_an_interval_of_zero_does_not_keep_a_caller_for_ever(scheduler: Scheduler) -> None:
    scheduler.every(0, "eager", lambda: None, first_after_ms=0)
    assert scheduler.run_due() == 1


def test_a_failure_is_kept_and_logged_in_one_line_and_does_not_end_the_repetition(
    clock: Clock, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise StorageError("the disk is gone")

    scheduler.every(10, "flush", fail, first_after_ms=0)
    with caplog.at_level(logging.ERROR, "duralog"):
        for _ in range(2):
            scheduler.run_due()
            clock.now_ms += 10
    assert [str(error) for error in scheduler.errors] == ["flush: the disk is gone"] * 2
    assert isinstance(scheduler.errors[0].error, StorageError)
    assert [record.getMessage() for record in caplog.records] == ["flush: the disk is gone"] * 2
    assert caplog.records[0].exc_info is None


def test_a_failure_of_another_package_is_reported_with_its_type() -> None:
    assert str(BackgroundError("flush", KeyError("orders"))) == "flush: KeyError('orders')"


def test_only_the_latest_failures_are_kept(clock: Clock, scheduler: Scheduler) -> None:
    def fail() -> None:
        raise KeyError(0)

    for number in range(150):
        scheduler.after(0, f"task {number}", fail)
    scheduler.run_due()
    assert len(scheduler.errors) == 100
    assert scheduler.errors[-1].task == "task 149"


def test_threads_run_what_is_due_at_once(threaded: Scheduler) -> None:
    done = threading.Event()
    threaded.after(0, "now", done.set)
    assert done.wait(60)


def test_a_task_runs_while_another_one_is_busy(threaded: Scheduler) -> None:
    first_may_end, second_ran = threading.Event(), threading.Event()

    def wait() -> None:
        first_may_end.wait(60)

    threaded.after(0, "busy", wait)
    threaded.after(0, "other", second_ran.set)
    assert second_ran.wait(60)
    first_may_end.set()


def test_stopping_waits_for_the_running_task_and_drops_the_others() -> None:
    scheduler = Scheduler(threads=1)
    started, ended, dropped = threading.Event(), threading.Event(), threading.Event()

    def busy() -> None:
        started.set()
        while not scheduler.is_stopping:
            pass
        ended.set()

    scheduler.after(0, "busy", busy)
    scheduler.after(0, "waiting", dropped.set)
    assert started.wait(60)
    scheduler.stop()
    assert ended.is_set()
    assert not dropped.is_set()
    scheduler.after(0, "too late", dropped.set)
    assert scheduler.run_due() == 0
    assert not dropped.is_set()


def test_there_can_be_more_threads_and_fewer(threaded: Scheduler) -> None:
    threaded.set_threads(4)
    together, done, alone = threading.Barrier(5), threading.Event(), threading.Event()

    def meet() -> None:
        together.wait(60)

    for _ in range(4):
        threaded.after(0, "together", meet)
    together.wait(60)
    threaded.after(0, "done", done.set)
    assert done.wait(60)
    threads = [*threaded._threads]
    threaded.set_threads(1)
    for _ in range(60_000):
        alive = [thread for thread in threads if thread.is_alive()]
        if len(alive) == 1:
            break
        threading.Event().wait(0.001)
    assert threaded._threads == alive
    threaded.after(0, "alone", alone.set)
    assert alone.wait(60)
    assert threaded.errors == ()


def test_a_scheduler_without_threads_gets_none(scheduler: Scheduler) -> None:
    scheduler.set_threads(3)
    assert scheduler._threads == []


def test_a_task_can_stop_its_scheduler() -> None:
    scheduler = Scheduler(threads=2, name="short-lived")
    scheduler.after(0, "the last", scheduler.stop)
    for thread in threading.enumerate():
        if thread.name.startswith("short-lived"):
            thread.join(60)
            assert not thread.is_alive()
    assert scheduler.errors == ()


def test_a_process_ends_without_stopping_the_scheduler() -> None:
    program = (
        "from duralog.storage.disk.background import Scheduler\n"
        "scheduler = Scheduler()\n"
        "assert not any(thread.daemon for thread in scheduler._threads)\n"
        "scheduler.every(1, 'work', lambda: None, first_after_ms=0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
