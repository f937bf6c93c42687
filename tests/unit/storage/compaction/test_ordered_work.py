"""Work of several threads, in order, with few things under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from duralog.storage.compaction.ordered_work import OrderedWork


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order(workers: int) -> None:
    with OrderedWork(workers) as work:
        assert list(work.map(lambda number: number * 2, range(100))) == [(number, number * 2) for number in range(100)]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_only_a_few_are_taken_ahead(workers: int) -> None:
    taken = 0

    def things() -> Iterator[int]:
        nonlocal taken
        for number in range(50):
            taken += 1
            yield number

    with OrderedWork(workers) as work:
        for done, _ in enumerate(work.map(lambda number: number, things()), start=1):
            assert taken - done <= (2 * workers if workers > 1 else 0)


def test_several_are_done_at_once_the_caller_being_one() -> None:
    both = threading.Barrier(2, timeout=30)
    threads: set[str] = set()

    def meet(_: int) -> None:
        threads.add(threading.current_thread().name)
        both.wait()

    with OrderedWork(2) as work:
        assert len(list(work.map(meet, range(4)))) == 4
    assert len(threads) == 2
    assert threading.current_thread().name in threads


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_the_work_comes_after_the_results_before_it(workers: int) -> None:
    seen: list[int] = []
    with OrderedWork(workers) as work, pytest.raises(ZeroDivisionError):
        seen.extend(number for number, _ in work.map(lambda number: 1 // (5 - number), range(100)))
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_the_things_comes_after_the_results_before_it(workers: int) -> None:
    def things() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    seen: list[int] = []
    with OrderedWork(workers) as work, pytest.raises(LookupError):
        seen.extend(number for number, _ in work.map(lambda number: number, things()))
    assert seen == [0, 1, 2, 3, 4]


def test_who_stops_early_waits_for_what_is_under_way() -> None:
    release = threading.Event()
    running, finished = threading.Event(), threading.Event()

    def slow(number: int) -> int:
        if number > 0 and threading.current_thread() is not threading.main_thread():
            running.set()
            release.wait(30)
            finished.set()
        return number

    with OrderedWork(2) as work, closing(work.map(slow, range(100))) as results:
        assert next(results) == (0, 0)
        assert running.wait(30)
        release.set()
        results.close()
        assert finished.is_set()
