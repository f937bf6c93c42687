"""Work in pieces on threads of this process: what `spark.tasks` does, without Spark.

The heaviest items begin first. Functions get a second argument, to be told how much they have done: bytes as a rule.
That is where they stop when nobody waits any more, after an error of another one or an interruption. What takes time
must let go of Python's lock, as the kernels do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from duralog.spark.tasks import LOOK_SECONDS, OnProgress, TaskProgress

Item = TypeVar("Item")
Result = TypeVar("Result")
Advance = Callable[[int], None]


def ignore(_: int) -> None:
    """An `Advance` for nobody."""


class _Stopped(Exception):
    """Nobody waits for the result any more."""


def run_in_threads(
    items: Sequence[Item],
    function: Callable[[Item, Advance], Result],
    *,
    threads: int,
    weight: Callable[[Item], int] | None = None,
    on_progress: OnProgress | None = None,
    name: str = "duralog",
) -> list[Result]:
    """`function` of every item, in their order. The first error is raised when the threads have stopped.

    `weight` tells how many bytes of work an item is, of which the function tells; without it, items are counted.
    """
    if not items:
        return []
    weights = [1 if weight is None else weight(item) for item in items]
    counting = threading.Lock()
    is_stopping = threading.Event()
    told = 0

    def advance(count: int) -> None:
        nonlocal told
        if is_stopping.is_set():
            raise _Stopped
        if weight is not None:
            with counting:
                told += count

    def progress() -> TaskProgress:
        finished = sum(future.done() for future in futures)
        return TaskProgress(
            name=name,
            tasks=len(items),
            tasks_done=finished,
            weight=sum(weights),
            weight_done=finished if weight is None else told,
            is_in_bytes=weight is not None,
        )

    pool = ThreadPoolExecutor(threads, thread_name_prefix="duralog-tasks")
    try:
        order = sorted(range(len(items)), key=lambda index: -weights[index])
        started = {index: pool.submit(function, items[index], advance) for index in order}
        futures = [started[index] for index in range(len(items))]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, LOOK_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if on_progress is not None:
                on_progress(progress())
    finally:
        is_stopping.set()
        pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]
