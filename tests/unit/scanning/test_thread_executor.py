"""Tasks on threads: results in order, progress in bytes, the first error ends all, no thread works on for nothing."""

from __future__ import annotations

import threading

import pytest

from duralog.errors import DuralogError
from duralog.scanning.executor import Advance, TaskProgress
from duralog.scanning.thread_executor import ThreadExecutor


def test_results_come_in_the_order_of_the_items() -> None:
    def double(item: int, advance: Advance) -> int:
        advance(item)
        return item * 2

    shown: list[TaskProgress] = []
    items = [5, 1, 9, 3]
    found = ThreadExecutor(3, shown.append).run(items, double, weight=lambda item: item, name="doubling")
    assert found == [10, 2, 18, 6]
    last = shown[-1]
    assert (last.name, last.tasks, last.tasks_done, last.weight, last.weight_done) == ("doubling", 4, 4, 18, 18)
    assert last.is_in_bytes
    assert ThreadExecutor(1).run([], double, name="doubling") == []


def test_the_heaviest_begin_first() -> None:
    begun: list[int] = []
    ThreadExecutor(1).run([2, 9, 4], lambda item, _: begun.append(item), weight=lambda item: item, name="beginning")
    assert begun == [9, 4, 2]


def test_items_without_weights_are_counted() -> None:
    shown: list[TaskProgress] = []
    ThreadExecutor(2, shown.append).run([1, 2, 3], lambda item, advance: advance(item * 1000), name="counting")
    assert (shown[-1].weight, shown[-1].weight_done, shown[-1].is_in_bytes) == (3, 3, False)


def test_progress_is_never_more_than_the_weight() -> None:
    shown: list[TaskProgress] = []

    def work(item: int, advance: Advance) -> None:
        if item == 10:
            advance(1000)

    ThreadExecutor(1, shown.append).run([10, 20], work, weight=lambda item: item, name="work")
    assert (shown[-1].weight, shown[-1].weight_done) == (30, 30)
    assert max(progress.weight_done for progress in shown) == 30


def test_an_error_stops_the_others_at_their_next_report() -> None:
    before = set(threading.enumerate())
    others_run = threading.Event()
    words = 0

    def work(item: str, advance: Advance) -> None:
        nonlocal words
        if item == "bad":
            assert others_run.wait(60)
            raise DuralogError("this one is bad")
        while True:
            others_run.set()
            words += 1
            advance(1)

    with pytest.raises(DuralogError, match="this one is bad"):
        ThreadExecutor(2).run(["good", "bad", "never begun"], work, name="work")
    # The good one would have gone on for ever, and the last one would not have come to an end.
    assert words > 0
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("duralog-tasks")]


def test_an_error_of_the_progress_callback_ends_the_run() -> None:
    def work(_: int, advance: Advance) -> None:
        while True:
            advance(1)

    def interrupt(_: TaskProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ThreadExecutor(2, interrupt).run([1, 2], work, name="work")
