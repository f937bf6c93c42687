"""How much goes into one task: enough that starting it costs nothing, little enough that all cores end together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")

SMALLEST_TASK_BYTES = 4 << 20
LARGEST_TASK_BYTES = 256 << 20
_TASKS_PER_CORE = 4


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
