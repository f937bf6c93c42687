"""Tasks on threads of this process (`duralog.scanning.executor`).

Long work must release the GIL, as the kernels and reads do. After an error of another task or an interrupt, a task
stops at its next call of `advance`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from duralog.scanning.executor import PROGRESS_SECONDS, Advance, Item, OnProgress, Result, TaskProgress


class _Stopped(Exception):
    """The result is not needed any more."""


class ThreadExecutor:
    """`parallelism` threads, for each run."""

    def __init__(self, parallelism: int, on_progress: OnProgress | None = None) -> None:
        self.parallelism = parallelism
        self._on_progress = on_progress

    def run(
        self,
        items: Sequence[Item],
        function: Callable[[Item, Advance], Result],
        *,
        name: str,
        weight: Callable[[Item], int] | None = None,
        weighs_bytes: bool = True,
    ) -> list[Result]:
        """See `Executor.run`. A finished task counts with its weight, a running one with the bytes that it has
        reported.
        """
        if not items:
            return []
        weights = [1 if weight is None else weight(item) for item in items]
        is_in_bytes = weight is not None and weighs_bytes
        reported = [0] * len(items)
        is_stopping = threading.Event()

        def run_one(index: int) -> Result:
            def advance(count: int) -> None:
                if is_stopping.is_set():
                    raise _Stopped
                reported[index] += count

            return function(items[index], advance)

        def progress() -> TaskProgress:
            is_done = [future.done() for future in futures]
            partly = (min(found) if is_in_bytes else 0 for found in zip(reported, weights, strict=True))
            return TaskProgress(
                name=name,
                tasks=len(items),
                tasks_done=sum(is_done),
                weight=sum(weights),
                weight_done=sum(
                    whole if done else part for done, whole, part in zip(is_done, weights, partly, strict=True)
                ),
                is_in_bytes=is_in_bytes,
            )

        pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="duralog-tasks")
        try:
            order = sorted(range(len(items)), key=lambda index: -weights[index])
            started = {index: pool.submit(run_one, index) for index in order}
            futures = [started[index] for index in range(len(items))]
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, PROGRESS_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if self._on_progress is not None:
                    self._on_progress(progress())
        finally:
            is_stopping.set()
            pool.shutdown(cancel_futures=True)
        return [future.result() for future in futures]
