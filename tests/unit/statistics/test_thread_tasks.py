"""Tasks on threads: results in order, progress in bytes, the first error ends all, nobody works on for nothing."""

from __future__ import annotations

import threading

import pytest

from duralog.errors import DuralogError
from duralog.spark.tasks import TaskProgress
from duralog.statistics.thread_tasks import Advance, run_in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    def double(item: int, advance: Advance) -> int:
        advance(item)
        return item * 2

    shown: list[TaskProgress] = []
    items = [5, 1, 9, 3]
    found = run_in_threads(
        items, double, threads=3, weight=lambda item: item, on_progress=shown.append, name="doubling"
    )
    assert found == [10, 2, 18, 6]
    last = shown[-1]
    assert (last.name, last.tasks, last.tasks_done, last.weight, last.weight_done) == ("doubling", 4, 4, 18, 18)
    assert last.is_in_bytes
    assert run_in_threads([], double, threads=1) == []


def test_the_heaviest_begin_first() -> None:
    begun: list[int] = []
    run_in_threads([2, 9, 4], lambda item, _: begun.append(item), threads=1, weight=lambda item: item)
    assert begun == [9, 4, 2]


def test_items_without_weights_are_counted() -> None:
    shown: list[TaskProgress] = []
    run_in_threads([1, 2, 3], lambda item, advance: advance(item * 1000), threads=2, on_progress=shown.append)
    assert (shown[-1].weight, shown[-1].weight_done, shown[-1].is_in_bytes) == (3, 3, False)


def test_an_error_stops_the_others_at_their_next_word() -> None:
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
        run_in_threads(["good", "bad", "never begun"], work, threads=2)
    # The good one would have gone on for ever, and the last one would not have come to an end.
    assert words > 0
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("duralog-tasks")]


def test_whoever_shows_progress_may_end_it() -> None:
    def work(_: int, advance: Advance) -> None:
        while True:
            advance(1)

    def interrupt(_: TaskProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_threads([1, 2], work, threads=2, on_progress=interrupt)
