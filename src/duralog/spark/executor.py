"""Tasks on Spark (`duralog.scanning.executor`): one Spark task for each item.

    SparkExecutor(spark, on_progress=show).run(folders, check_folder, weight=size_of, name="verify")

What must always be true:
- duralog is installed where the tasks run.
- A task that raises a `DuralogError` or an `OSError` returns it as a value. It is raised here as it is: Spark neither
  repeats the task nor wraps the error in a Java stack. Any other error is a bug, or a lost executor: Spark repeats the
  task up to `spark.task.maxFailures` times, and then a `TaskFailed` is raised.
- Two copies of a task at the same time, as speculation makes them, would write over each other. With `writes`,
  speculation is refused, and after an error all tasks finish before it is raised.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic

from duralog.errors import DuralogError
from duralog.scanning.executor import (
    PROGRESS_SECONDS,
    Advance,
    Item,
    OnProgress,
    Result,
    TaskProgress,
    ignore_progress,
)

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession


class TaskFailed(DuralogError):
    """A task failed with an unexpected error, or its executor was lost too often."""


class SparkExecutor:
    """The executors of a Spark session. Progress is counted in tasks that have ended."""

    def __init__(self, spark: SparkSession, on_progress: OnProgress | None = None) -> None:
        self.spark = spark
        self.on_progress = on_progress

    @property
    def parallelism(self) -> int:
        return _context_of(self.spark).defaultParallelism

    def run(
        self,
        items: Sequence[Item],
        function: Callable[[Item, Advance], Result],
        *,
        name: str,
        weight: Callable[[Item], int] | None = None,
        weighs_bytes: bool = True,
        writes: bool = False,
    ) -> list[Result]:
        """See `Executor.run`. With `writes`, no task is started twice at the same time."""
        if not items:
            return []
        context = _context_of(self.spark)
        if writes and context.getConf().get("spark.speculation", "false") == "true":
            raise DuralogError(
                f"{name}: its tasks write files, which two at a time must not: set spark.speculation=false"
            )
        weights = [1 if weight is None else weight(item) for item in items]
        job = _Job(context, items, function, name)
        order = sorted(range(len(items)), key=lambda index: -weights[index])
        thread = _thread(job.run, order)
        thread.start()

        def report_progress() -> None:
            if self.on_progress is None:
                return
            done = set(job.finished())
            self.on_progress(
                TaskProgress(
                    name=name,
                    tasks=len(items),
                    tasks_done=len(done),
                    weight=sum(weights),
                    weight_done=sum(weights[index] for index in done),
                    is_in_bytes=weight is not None and weighs_bytes,
                )
            )

        try:
            while thread.is_alive():
                thread.join(PROGRESS_SECONDS)
                report_progress()
                if not writes and job.first_error() is not None:
                    job.cancel()
        except BaseException:
            job.cancel()
            thread.join()
            raise
        error = job.first_error()
        if error is not None:
            raise error
        if job.failure is not None:
            raise task_failure(name, job.failure) from job.failure
        results = dict(job.results)
        report_progress()
        return [results[index] for index in range(len(items))]


class _Job(Generic[Item, Result]):
    """One Spark job, run by a thread of its own: the one that started it waits, shows progress and may cancel it."""

    def __init__(
        self, context: SparkContext, items: Sequence[Item], function: Callable[[Item, Advance], Result], name: str
    ) -> None:
        self.results: list[tuple[int, Result]] = []
        self.failure: Exception | None = None
        self._context = context
        self._items = items
        self._function = function
        self._name = name
        self._group = f"duralog-{uuid.uuid4()}"
        self._ended = context.accumulator((), _ended_tasks())

    def run(self, order: Sequence[int]) -> None:
        try:
            self._context.setJobGroup(self._group, self._name)
            numbered = [(index, self._items[index]) for index in order]
            rows = self._context.parallelize(numbered, len(numbered))
            self.results = rows.mapPartitions(_Task(self._function, self._ended)).collect()
        except Exception as error:
            self.failure = error

    def finished(self) -> list[int]:
        return [index for index, _ in self._ended.value]

    def first_error(self) -> Exception | None:
        """The error of the first item that has one."""
        errors = {index: error for index, error in self._ended.value if error is not None}
        return errors[min(errors)] if errors else None

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)


class _Task(Generic[Item, Result]):
    """What a worker runs: the function, with its errors as values, and a report to the driver when it has ended."""

    def __init__(self, function: Callable[[Item, Advance], Result], ended: Accumulator[Any]) -> None:
        self._function = function
        self._ended = ended

    def __call__(self, items: Iterable[tuple[int, Item]]) -> Iterator[tuple[int, Result]]:
        for index, item in items:
            try:
                result = self._function(item, ignore_progress)
            except (DuralogError, OSError) as error:
                self._ended.add(((index, error),))
            else:
                self._ended.add(((index, None),))
                yield index, result


def _thread(run: Callable[[Sequence[int]], None], order: Sequence[int]) -> threading.Thread:
    """A thread with the caller's Spark settings, such as its scheduler pool."""
    from pyspark import InheritableThread

    return InheritableThread(target=run, args=(order,), daemon=True)


def _ended_tasks() -> Any:
    """How the driver merges the reports of tasks: a tuple of (index, error or None)."""
    from pyspark.accumulators import AddingAccumulatorParam

    return AddingAccumulatorParam(())


def _context_of(spark: SparkSession) -> SparkContext:
    try:
        return spark.sparkContext
    except Exception as error:
        # A session of Spark Connect has none.
        raise DuralogError("jobs need a classic Spark session: Spark Connect cannot run them") from error


def task_failure(name: str, failure: Exception) -> TaskFailed:
    """One line of a Java or Python stack: the one that says what happened."""
    text = str(getattr(failure, "java_exception", failure))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The last line of the worker's Python traceback; otherwise what Spark itself says.
    python_end = next((at for at, line in enumerate(lines) if line.startswith("at org.apache.spark")), len(lines))
    has_traceback = any("Traceback (most recent call last)" in line for line in lines[:python_end])
    reason = (lines[python_end - 1] if has_traceback else lines[0]) if lines else type(failure).__name__
    return TaskFailed(f"{name}: a task failed: {reason}")
