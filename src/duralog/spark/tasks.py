"""Work in pieces: one Spark task for each of them, wherever Spark has its executors.

    reports = run_tasks(spark, folders, check_folder, weight=size_of, on_progress=show)

What must always be true:
- `function` and the items travel: both are pickled, and a task knows nothing of the driver's memory. duralog is
  installed where the tasks run.
- The heaviest items begin first, so that no core is left with a long one at the end.
- A task that raises a `DuralogError` or an `OSError` hands it over as a value. It is raised here as what it is: Spark
  neither repeats the task nor wraps the error in a Java stack. Anything else is a bug, or an executor that was lost:
  Spark repeats it as often as `spark.task.maxFailures` says, and then a `TaskFailed` tells of it.
- A task may run again after its executor was lost, so what it writes must be safe to repeat. Two copies of it at the
  same time, as speculation makes them, would write over each other: with `writes`, speculation is refused, and an error
  in one task lets the ones that are running come to their end before it is raised.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from duralog.errors import DuralogError

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_SECONDS = 0.1
"""How often the progress is looked at."""


class TaskFailed(DuralogError):
    """A task ended in a way that nobody foresaw, or its executor was lost too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far the tasks of one job have come."""

    name: str
    tasks: int
    tasks_done: int
    weight: int
    """Of all items: bytes, as a rule."""
    weight_done: int
    is_in_bytes: bool = True
    """Otherwise weights are numbers of things, tasks mostly."""


OnProgress = Callable[[TaskProgress], None]
"""Told now and then, in the thread that waits for the job, and once at its end."""


def run_tasks(
    spark: SparkSession,
    items: Sequence[Item],
    function: Callable[[Item], Result],
    *,
    weight: Callable[[Item], int] | None = None,
    weighs_bytes: bool = True,
    on_progress: OnProgress | None = None,
    name: str = "duralog",
    writes: bool = False,
) -> list[Result]:
    """`function` of every item, in their order, each computed by a task of its own.

    `weight` tells how much work an item is, in bytes unless `weighs_bytes` says no; without it, all are alike.
    `name` is what Spark's pages call the job.
    """
    if not items:
        return []
    context = _context_of(spark)
    if writes and context.getConf().get("spark.speculation", "false") == "true":
        raise DuralogError(f"{name}: its tasks write files, which two at a time must not: set spark.speculation=false")
    weights = [1 if weight is None else weight(item) for item in items]
    job = _Job(context, items, function, name)
    order = sorted(range(len(items)), key=lambda index: -weights[index])
    thread = _thread(job.run, order)
    thread.start()

    def progress() -> TaskProgress:
        done = set(job.finished())
        return TaskProgress(
            name=name,
            tasks=len(items),
            tasks_done=len(done),
            weight=sum(weights),
            weight_done=sum(weights[index] for index in done),
            is_in_bytes=weight is not None and weighs_bytes,
        )

    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            if on_progress is not None:
                on_progress(progress())
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
        raise as_sentence(name, job.failure) from job.failure
    results = dict(job.results)
    if on_progress is not None:
        on_progress(progress())
    return [results[index] for index in range(len(items))]


class _Job(Generic[Item, Result]):
    """One Spark job, run by a thread of its own: the one that started it waits, shows progress and may cancel it."""

    def __init__(
        self, context: SparkContext, items: Sequence[Item], function: Callable[[Item], Result], name: str
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
    """What a worker runs: the function, with its errors as values, and a word to the driver when it has ended."""

    def __init__(self, function: Callable[[Item], Result], ended: Accumulator[Any]) -> None:
        self._function = function
        self._ended = ended

    def __call__(self, items: Iterable[tuple[int, Item]]) -> Iterator[tuple[int, Result]]:
        for index, item in items:
            try:
                result = self._function(item)
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
    """How the driver puts together what tasks report: a tuple of (index, error or None)."""
    from pyspark.accumulators import AddingAccumulatorParam

    return AddingAccumulatorParam(())


def _context_of(spark: SparkSession) -> SparkContext:
    try:
        return spark.sparkContext
    except Exception as error:
        # A session of Spark Connect has none.
        raise DuralogError("jobs need a classic Spark session: Spark Connect cannot run them") from error


def as_sentence(name: str, failure: Exception) -> TaskFailed:
    """The line of a Java or Python stack that tells what happened."""
    text = str(getattr(failure, "java_exception", failure))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The last line of the worker's Python traceback; otherwise what Spark itself says.
    python_end = next((at for at, line in enumerate(lines) if line.startswith("at org.apache.spark")), len(lines))
    has_traceback = any(line.startswith("Traceback (most recent call last)") for line in lines[:python_end])
    told = (lines[python_end - 1] if has_traceback else lines[0]) if lines else type(failure).__name__
    return TaskFailed(f"{name}: a task failed: {told}")
