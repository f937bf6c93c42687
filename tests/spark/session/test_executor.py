"""Tasks: results in order, errors as themselves, progress while they run."""

from __future__ import annotations

import errno
import os
import time
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duralog.errors import CorruptRecord, DuralogError, Fault
from duralog.scanning.executor import (
    LARGEST_TASK_BYTES,
    SMALLEST_TASK_BYTES,
    Advance,
    TaskProgress,
    ignore_progress,
    in_equal_groups,
    in_groups,
    one_by_one,
    run_in_groups,
)
from duralog.spark.executor import SparkExecutor, TaskFailed

pytestmark = pytest.mark.spark


def squared(number: int, _: Advance = ignore_progress) -> int:
    return number * number


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    numbers = [3, 1, 4, 1, 5, 9, 2, 6]
    executor = SparkExecutor(spark)
    assert executor.run(numbers, squared, weight=lambda number: number, name="test") == list(map(squared, numbers))
    assert executor.run([], squared, name="test") == []


def test_the_heaviest_begin_first(spark: SparkSession) -> None:
    """Spark starts the tasks of a stage by their number."""

    def task_number(_: int, __: Advance) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return context.partitionId()

    found = SparkExecutor(spark).run([30, 10, 20, 40], task_number, weight=lambda number: number, name="test")
    assert found == [1, 3, 2, 0]


def test_progress_ends_with_everything_done(spark: SparkSession) -> None:
    seen: list[TaskProgress] = []
    SparkExecutor(spark, seen.append).run([10, 20, 30], squared, weight=lambda number: number, name="squares")
    assert seen[-1] == TaskProgress(name="squares", tasks=3, tasks_done=3, weight=60, weight_done=60)
    assert all(before.weight_done <= after.weight_done for before, after in pairwise(seen))


def test_progress_is_reported_while_tasks_run(spark: SparkSession, tmp_path: Path) -> None:
    """The second task waits for the driver to have heard of the first one."""
    heard = tmp_path / "heard"

    def wait(number: int, _: Advance) -> int:
        deadline = time.monotonic() + 120
        while number == 2 and not heard.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return number

    def show(progress: TaskProgress) -> None:
        if progress.tasks_done == 1:
            heard.touch()

    assert SparkExecutor(spark, show).run([1, 2], wait, name="test") == [1, 2]


@pytest.mark.parametrize("writes", [False, True])
def test_an_error_comes_back_as_itself(spark: SparkSession, writes: bool) -> None:
    def fail(number: int, _: Advance) -> int:
        if number == 1:
            raise CorruptRecord("bad", fault=Fault.CRC_MISMATCH, file="a.log", position=7, expected=1, found=2)
        return number

    with pytest.raises(CorruptRecord, match=r"^a.log: position 7: bad \(expected 1, found 2\)$") as caught:
        SparkExecutor(spark).run([0, 1], fail, writes=writes, name="test")
    assert (caught.value.fault, caught.value.position) == (Fault.CRC_MISMATCH, 7)


def test_an_error_of_the_system_comes_back_as_itself(spark: SparkSession) -> None:
    def fail(_: int, __: Advance) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full")

    with pytest.raises(OSError, match="No space left") as caught:
        SparkExecutor(spark).run([0], fail, name="test")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/full")


def test_an_error_ends_what_has_not_begun(spark: SparkSession, tmp_path: Path) -> None:
    def begin(number: int, _: Advance) -> int:
        (tmp_path / str(number)).touch()
        if number == 0:
            raise DuralogError("no more")
        time.sleep(1)
        return number

    with pytest.raises(DuralogError, match=r"^no more$"):
        SparkExecutor(spark).run(list(range(100)), begin, name="test")
    assert len(list(tmp_path.iterdir())) < 100


def test_writing_tasks_come_to_their_end_before_an_error_is_raised(spark: SparkSession, tmp_path: Path) -> None:
    def begin(number: int, _: Advance) -> int:
        if number == 0:
            raise DuralogError("no more")
        time.sleep(0.3)
        (tmp_path / str(number)).touch()
        return number

    with pytest.raises(DuralogError, match=r"^no more$"):
        SparkExecutor(spark).run([0, 1, 2, 3], begin, writes=True, name="test")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "3"]


def test_a_bug_is_one_sentence(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(number: int, _: Advance) -> int:
        return [1][number]

    with pytest.raises(TaskFailed, match=r"^squares: a task failed: IndexError: list index out of range$"):
        SparkExecutor(spark).run([7], fail, name="squares")
    capfd.readouterr()


class Conf:
    def get(self, name: str, default: str) -> str:
        return "true" if name == "spark.speculation" else default


class Speculating:
    """A session whose Spark starts slow tasks a second time."""

    @property
    def sparkContext(self) -> Speculating:  # noqa: N802 (Spark's name)
        return self

    def getConf(self) -> Conf:  # noqa: N802 (Spark's name)
        return Conf()


class Connected:
    """A session of Spark Connect."""

    @property
    def sparkContext(self) -> None:  # noqa: N802 (Spark's name)
        raise NotImplementedError("JVM_ATTRIBUTE_NOT_SUPPORTED")


def test_sessions_that_cannot_run_tasks_are_refused() -> None:
    with pytest.raises(DuralogError, match=r"^squares: its tasks write files, .* set spark.speculation=false$"):
        SparkExecutor(Speculating()).run([1], squared, name="squares", writes=True)  # type: ignore[arg-type]
    with pytest.raises(DuralogError, match="Spark Connect cannot run them"):
        SparkExecutor(Connected()).run([1], squared, name="test")  # type: ignore[arg-type]
    with pytest.raises(DuralogError, match="Spark Connect cannot run them"):
        _ = SparkExecutor(Connected()).parallelism  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[], [1], [1] * 50, [SMALLEST_TASK_BYTES] * 50, [1, 9 * LARGEST_TASK_BYTES, 1]])
def test_groups_keep_all_items_in_order(spark: SparkSession, sizes: list[int]) -> None:
    items = list(enumerate(sizes))
    groups = in_groups(SparkExecutor(spark), items, lambda item: item[1])
    assert [item for group in groups for item in group] == items
    assert all(groups)
    if max(sizes, default=0) < SMALLEST_TASK_BYTES:
        assert len(groups) <= 1


def test_a_large_amount_is_spread_over_all_cores(spark: SparkSession) -> None:
    groups = in_groups(SparkExecutor(spark), [LARGEST_TASK_BYTES // 100] * 100, lambda size: size)
    assert len(groups) >= 2 * spark.sparkContext.defaultParallelism


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_equal_groups_are_no_more_than_a_few_for_each_core(spark: SparkSession, count: int) -> None:
    groups = in_equal_groups(SparkExecutor(spark), list(range(count)))
    assert [item for group in groups for item in group] == list(range(count))
    assert len(groups) <= 4 * spark.sparkContext.defaultParallelism
    assert all(groups)


def test_small_items_share_tasks(spark: SparkSession) -> None:
    seen: list[TaskProgress] = []
    sizes = [0, 0, SMALLEST_TASK_BYTES, 0, LARGEST_TASK_BYTES, *[0] * 100]
    found = run_in_groups(SparkExecutor(spark, seen.append), sizes, one_by_one(squared), size_bytes=int, name="squares")
    assert found == list(map(squared, sizes))
    assert (seen[-1].tasks, seen[-1].weight_done) == (3, sum(sizes))
