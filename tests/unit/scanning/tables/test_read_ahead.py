"""Reading ahead: in order, with errors in their place, in bounded memory, and no thread is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from duralog.scanning.tables import read_ahead as module
from duralog.scanning.tables.read_ahead import read_ahead

RESULTS = 50


class Reader:
    """Reads tasks of `RESULTS` results each, and counts how many were made."""

    def __init__(self, failing: int | None = None) -> None:
        self.made = 0
        self.failing = failing
        self.closed = 0
        self._lock = threading.Lock()

    def __call__(self, task: Sequence[Any]) -> Iterator[tuple[int, int]]:
        (number,) = task
        try:
            for result in range(RESULTS):
                if number == self.failing and result == RESULTS // 2:
                    raise ValueError("half of it")
                with self._lock:
                    self.made += 1
                yield number, result
        finally:
            with self._lock:
                self.closed += 1


def tasks(count: int) -> Any:
    return [(number,) for number in range(count)]


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("duralog-scan")]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, module.WAITING_BYTES, 100 * module.WAITING_BYTES])
def test_all_results_in_order(threads: int, size: int) -> None:
    found = list(read_ahead(tasks(8), Reader(), threads, lambda _: size))
    assert found == [(task, result) for task in range(8) for result in range(RESULTS)]
    assert not threads_left()
    assert list(read_ahead([], Reader(), threads)) == []


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [0, module.WAITING_BYTES])
def test_an_error_comes_after_the_results_before_it(threads: int, size: int) -> None:
    found: list[tuple[int, int]] = []
    with pytest.raises(ValueError, match="half of it"):
        found.extend(read_ahead(tasks(8), Reader(failing=2), threads, lambda _: size))
    assert len(found) == 2 * RESULTS + RESULTS // 2
    assert not threads_left()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_waits_is_bounded(threads: int) -> None:
    """However slow the consumer is: of results as large as all that may wait for a task, a few for each thread."""
    reader = Reader()
    for taken, _ in enumerate(read_ahead(tasks(8), reader, threads, lambda _: module.WAITING_BYTES), start=1):
        assert reader.made - taken <= threads + 1 + threads
    assert reader.made == 8 * RESULTS


def test_a_consumer_that_stops_early() -> None:
    reader = Reader()
    stream: Any = read_ahead(tasks(100), reader, 3, lambda _: module.WAITING_BYTES)
    with closing(stream) as results:
        assert next(results) == (0, 0)
    assert not threads_left()
    del results, stream
    assert reader.made <= 1 + 4 + 3
    assert reader.closed <= 4


def test_a_stream_of_which_nothing_was_read_starts_no_thread() -> None:
    reader = Reader()
    read_ahead(tasks(3), reader, 2)
    assert not threads_left()
    assert not reader.made


def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for ever for threads that it does not have."""
    results = read_ahead(tasks(3), Reader(), 2)
    next(results)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(RuntimeError, match="scan again in this one"):
        next(results)
