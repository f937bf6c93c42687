"""What dies in the middle of `job compact`: tasks, second attempts, and the driver with everything that it started.

Whatever it is, the directory opens with each group of segments old or new, and no reader misses the last record of a
key. No session is needed but for the driver that is killed, which has its own, in its own process.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duralog.errors import StorageError, StoreLocked
from duralog.format.topic_partition import TopicPartition
from duralog.reports.compact import PartitionCompaction
from duralog.spark.jobs.compaction import shuffled as compact_shuffled
from duralog.spark.jobs.compaction.task import CompactSettings, CompactWork, compact_in_task
from duralog.spark.jobs.holding import HeldDirectory, hold
from duralog.storage.borrowed_partition import borrow, borrow_folder
from duralog.storage.checks.verification import Verification
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.recovery.leftovers import STAGING_FOLDER
from tests.support.spark.compact_job_directory import (
    COMPACTED,
    LARGE_MAP_BYTES,
    NOW_MS,
    compacted_by_a_store,
    contents,
    copied,
    is_closed_in_order,
    latest_values,
    make_directory,
    open_store,
)

pytestmark = pytest.mark.spark

PARTITION = TopicPartition("changes", 0)

DYING_TASK = """
import os, pickle, signal, sys
from duralog.spark.jobs.compaction.task import compact_in_task
from duralog.storage.disk.file_system import LocalFileSystem

calls = 0
rename = LocalFileSystem.rename

def dies(self, source, target):
    global calls
    calls += 1
    if calls == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(self, source, target)

LocalFileSystem.rename = dies
print(compact_in_task(pickle.load(sys.stdin.buffer)))
"""

DYING_DRIVER = """
import os, signal, sys
from duralog.spark.session import local_session
from duralog.storage.log import partition_log

path, swaps = sys.argv[1], int(sys.argv[2])
swap_in = partition_log.swap_in

def dies(*arguments):
    global swaps
    swaps -= 1
    if swaps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    swap_in(*arguments)

partition_log.swap_in = dies
spark = local_session("local[2]", "dying", {"spark.driver.memory": "1g"})
from duralog.spark.jobs import compact
compact(spark, path, topics=["changes"], partition=0, now_ms=%d, memory_bytes=1 << 16, shuffled=True)
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("compact") / "original")


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "data")
    return tmp_path / "data"


def values(path: Path) -> list[dict[bytes, bytes | None]]:
    return [latest_values(path, topic, number) for topic, number in COMPACTED]


def findings(path: Path) -> list[str]:
    return [str(error) for report in Verification(str(path)).run() for error in report.errors]


def work_of(held: HeldDirectory, partition: TopicPartition = PARTITION) -> CompactWork:
    settings = CompactSettings(now_ms=NOW_MS, memory_bytes=LARGE_MAP_BYTES)
    return CompactWork(loan=held.lend(partition), settings=settings, size_bytes=0)


def compacted(outcome: PartitionCompaction | None) -> int:
    assert outcome is not None
    assert outcome.report is not None, outcome.failure
    return outcome.report.rounds


def test_a_task_that_runs_twice_finds_nothing_to_do(path: Path) -> None:
    expected = compacted_by_a_store(copied(path, "expected"))
    with hold(str(path)) as held:
        for partition in [TopicPartition(*found) for found in COMPACTED]:
            work = work_of(held, partition)
            assert [compacted(compact_in_task(work)) for _ in range(2)] == [1, 0]
    assert contents(path) == contents(expected)


@pytest.mark.parametrize("renames", [1, 3, 5, 7])
def test_a_task_that_is_killed_is_done_by_the_next_attempt(path: Path, renames: int) -> None:
    """At the checkpoints, at `.swap`, at `.deleted`, and at the plain names."""
    expected, before = compacted_by_a_store(copied(path, "expected")), values(path)
    with hold(str(path)) as held:
        work = work_of(held)
        program = [sys.executable, "-c", DYING_TASK, str(renames)]
        died = subprocess.run(program, input=pickle.dumps(work), capture_output=True, check=False)
        assert died.returncode == -signal.SIGKILL, died
        assert values(path) == before
        with borrow_folder(work.loan) as folder:
            assert not folder.was_in_order
        for partition in [TopicPartition(*found) for found in COMPACTED]:
            compacted(compact_in_task(work_of(held, partition)))
    assert is_closed_in_order(path)
    assert contents(path) == contents(expected)
    assert findings(path) == []


def test_without_another_attempt_the_next_start_recovers(path: Path) -> None:
    before = values(path)
    with hold(str(path)) as held:
        program = [sys.executable, "-c", DYING_TASK, "4"]
        subprocess.run(program, input=pickle.dumps(work_of(held)), capture_output=True, check=False)
    assert not is_closed_in_order(path)
    open_store(path, NOW_MS).close()
    assert is_closed_in_order(path)
    assert values(path) == before
    assert findings(path) == []


def test_a_late_task_of_a_job_that_is_over_is_refused(path: Path) -> None:
    with hold(str(path)) as held:
        work = work_of(held)
    outcome = compact_in_task(work)
    assert outcome is not None
    assert outcome.failure is not None
    assert "does not hold the directory" in outcome.failure
    with hold(str(path)), pytest.raises(StoreLocked), borrow(work.loan):
        pass


def test_an_interruption_is_one_though_tasks_still_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the shuffled form, where the folder of the tasks can get new files while it is removed."""
    remove_folder = LocalFileSystem.remove_folder

    class Interrupted:
        groups_at_once = 1

        def __init__(self, *_: object) -> None:
            pass

        def shuffle_keys(self, _: object) -> None:
            raise KeyboardInterrupt

    def not_empty(files: LocalFileSystem, folder: str) -> None:
        if folder.endswith(STAGING_FOLDER) and os.path.exists(folder):
            raise StorageError(f"{folder}: cannot remove the folder: Directory not empty")
        remove_folder(files, folder)

    monkeypatch.setattr(compact_shuffled, "SparkCrew", Interrupted)
    monkeypatch.setattr(LocalFileSystem, "remove_folder", not_empty)
    with hold(str(path)) as held, pytest.raises(KeyboardInterrupt):
        compact_shuffled.compact_shuffled(None, work_of(held))  # type: ignore[arg-type]
    assert (path / "changes-0" / STAGING_FOLDER).exists()
    monkeypatch.undo()
    open_store(path, NOW_MS).close()
    assert not (path / "changes-0" / STAGING_FOLDER).exists()


def test_a_driver_that_is_killed_leaves_old_or_new(path: Path) -> None:
    """In the shuffled form, where it is the driver that puts segments into their places; here it dies at the second."""
    with open_store(path, NOW_MS) as store:
        # Segments that are too large for one another, so that there are several groups.
        store.alter_topic_config("changes", {"segment.bytes": 1 << 20, "index.interval.bytes": 1})
        store.alter_topic_config("changes", {"segment.index.bytes": 64})
    before = values(path)
    program = [sys.executable, "-c", DYING_DRIVER % NOW_MS, str(path), "2"]
    died = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert (path / "changes-0" / STAGING_FOLDER).exists(), "tasks had written what counts for nothing"
    assert not is_closed_in_order(path)
    assert values(path) == before
    with open_store(path, NOW_MS) as store:
        assert not (path / "changes-0" / STAGING_FOLDER).exists()
        store.compact("changes", 0)
    assert values(path) == before
    assert findings(path) == []
