"""How much goes into one task: enough that starting it costs nothing, little enough that all cores end together.

A directory may have thousands of partitions, most of them small or empty: these share tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from duralog.errors import InvalidConfig
from duralog.spark.tasks import OnProgress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALLEST_TASK_BYTES = 4 << 20
LARGEST_TASK_BYTES = 256 << 20
_TASKS_PER_CORE = 4
_SMALLEST_MAP_BYTES = 1024


def check_map_bytes(name: str, size_bytes: int) -> None:
    """Refuse what no map of keys fits into. `name` is what the caller's user calls it."""
    if size_bytes < _SMALLEST_MAP_BYTES:
        raise InvalidConfig(f"{name}: {size_bytes} is not allowed, a map has at least {_SMALLEST_MAP_BYTES}")


def in_groups(spark: SparkSession, items: Sequence[Item], size_bytes: Callable[[Item], int]) -> list[list[Item]]:
    """The items in their order, in groups for one task each: about four for each core, but none very small or large."""
    cores = spark.sparkContext.defaultParallelism
    sizes = [size_bytes(item) for item in items]
    wanted = min(max(sum(sizes) // (cores * _TASKS_PER_CORE), SMALLEST_TASK_BYTES), LARGEST_TASK_BYTES)
    groups: list[list[Item]] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        if not groups or room < size:
            groups.append([])
            room = wanted
        groups[-1].append(item)
        room -= size
    return groups


def in_equal_groups(spark: SparkSession, items: Sequence[Item]) -> list[list[Item]]:
    """The items in their order, in groups of the same size: about four for each core. For work that is little each."""
    wanted = spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
    size = max(-(-len(items) // wanted), 1)
    return [list(items[first : first + size]) for first in range(0, len(items), size)]


def run_in_groups(
    spark: SparkSession,
    items: Sequence[Item],
    function: Callable[[Sequence[Item]], list[Result]],
    *,
    size_bytes: Callable[[Item], int],
    on_progress: OnProgress | None = None,
    name: str,
) -> list[Result]:
    """What the function gives for the items of each task (`in_groups`), in the order of all items."""
    sizes = {id(item): size_bytes(item) for item in items}
    found = run_tasks(
        spark,
        in_groups(spark, items, lambda item: sizes[id(item)]),
        function,
        weight=lambda group: sum(sizes[id(item)] for item in group),
        on_progress=on_progress,
        name=name,
    )
    return [result for of_task in found for result in of_task]


def one_by_one(function: Callable[[Item], Result]) -> Callable[[Sequence[Item]], list[Result]]:
    """For `run_in_groups`, where items of a task have nothing in common. Can be pickled if the function can."""
    return partial(_one_by_one, function)


def _one_by_one(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [function(item) for item in items]
