"""The executor protocol, and the grouping of items into tasks.

An operation passes a function and items to an executor, which runs them on threads of this process
(`duralog.scanning.thread_executor`) or on a cluster (`duralog.spark.executor`).

    reports = run_in_groups(executor, folders, check_folders, size_bytes=size_of, name="verify")

What every executor guarantees:
- Results are in the order of the items. The heaviest items start first, so that no core ends with a long one.
- A `DuralogError` or an `OSError` of a task is raised as it is, and ends the run. On threads, tasks that have not
  started do not start, and running ones end before the error is raised; for Spark, see its module. An interrupt,
  and an error of `on_progress`, also end the run.
- Progress is reported in the thread that waits for the tasks.

What an executor requires:
- The function and the items can be pickled. A task does not see the memory of the caller.
- A task may run a second time after its machine was lost, so what it writes must be safe to repeat.
- Tasks that take long call `advance`. On threads, this is where they stop after an error of another task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from duralog.config.plurals import plural

Item = TypeVar("Item")
Result = TypeVar("Result")

Advance = Callable[[int], None]
"""Called by a task with the number of bytes that it has read or written since its last call."""

SMALLEST_TASK_BYTES = 4 << 20
LARGEST_TASK_BYTES = 256 << 20
PROGRESS_SECONDS = 0.1
"""How often progress is reported."""

_TASKS_PER_CORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How many of the tasks of one run are done."""

    name: str
    tasks: int
    tasks_done: int
    weight: int
    """Of all items: bytes, as a rule."""
    weight_done: int
    is_in_bytes: bool = True
    """Otherwise weights are numbers of things, tasks mostly."""

    # What `duralog.config.progress.Progress` asks for.

    detail = ""

    @property
    def step(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        return f"{self.name}: {self.tasks_done} of {plural(self.tasks, 'task')}"

    @property
    def done(self) -> int:
        return self.weight_done

    @property
    def total(self) -> int:
        return self.weight

    @property
    def unit(self) -> str | None:
        return None if self.is_in_bytes else ""


OnProgress = Callable[[TaskProgress], None]
"""Called a few times a second while tasks run, and once at the end."""


class Executor(Protocol):
    """Runs tasks, reports progress and returns results. See the module for what it guarantees and requires."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    def run(
        self,
        items: Sequence[Item],
        function: Callable[[Item, Advance], Result],
        *,
        name: str,
        weight: Callable[[Item], int] | None = None,
        weighs_bytes: bool = True,
    ) -> list[Result]:
        """The result of `function` for every item, each in its own task.

        `weight` is how much work an item is, in bytes unless `weighs_bytes` is False; without it, all items weigh the
        same. `name` is shown with the progress, and in Spark's pages.
        """


def ignore_progress(_: int) -> None:
    """An `Advance` without effect."""


def run_in_groups(
    executor: Executor,
    items: Sequence[Item],
    function: Callable[[Sequence[Item], Advance], list[Result]],
    *,
    size_bytes: Callable[[Item], int],
    name: str,
) -> list[Result]:
    """The results of all items, in their order. `function` gets the items of one task (`in_groups`).

    For partitions: a directory may have thousands of them, most of them small or empty. These share tasks.
    """
    sizes = {id(item): size_bytes(item) for item in items}
    found = executor.run(
        in_groups(executor, items, lambda item: sizes[id(item)]),
        function,
        name=name,
        weight=lambda group: sum(sizes[id(item)] for item in group),
    )
    return [result for of_task in found for result in of_task]


def run_in_equal_groups(
    executor: Executor, items: Sequence[Item], function: Callable[[Sequence[Item], Advance], list[Result]], *, name: str
) -> list[Result]:
    """The same for work that is little for each item, and as much for a large one: groups have the same length."""
    groups = in_equal_groups(executor, items)
    found = executor.run(groups, function, name=name, weight=len, weighs_bytes=False)
    return [result for of_task in found for result in of_task]


def in_groups(executor: Executor, items: Sequence[Item], size_bytes: Callable[[Item], int]) -> list[list[Item]]:
    """The items in their order, in groups for one task each: about four for each core, but none very small or large."""
    sizes = [size_bytes(item) for item in items]
    wanted = sum(sizes) // (executor.parallelism * _TASKS_PER_CORE)
    wanted = min(max(wanted, SMALLEST_TASK_BYTES), LARGEST_TASK_BYTES)
    groups: list[list[Item]] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        if not groups or room < size:
            groups.append([])
            room = wanted
        groups[-1].append(item)
        room -= size
    return groups


def in_equal_groups(executor: Executor, items: Sequence[Item]) -> list[list[Item]]:
    """The items in their order, in groups of the same length: about four for each core."""
    size = max(-(-len(items) // (executor.parallelism * _TASKS_PER_CORE)), 1)
    return [list(items[first : first + size]) for first in range(0, len(items), size)]


def one_by_one(function: Callable[[Item], Result]) -> Callable[[Sequence[Item], Advance], list[Result]]:
    """For groups whose items have nothing in common. Can be pickled if the function can."""
    return partial(_one_by_one, function)


def _one_by_one(function: Callable[[Item], Result], items: Sequence[Item], advance: Advance) -> list[Result]:
    results = []
    for item in items:
        results.append(function(item))
        advance(0)  # Nothing is counted, but this is where a run that has failed stops.
    return results
