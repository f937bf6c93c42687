"""A directory held by a job, its partitions opened one by one, here in the same process: what is left when all is over.

`tests/unit/storage/disk/test_lent_lock.py` has the locks, `tests/spark/jobs/test_compact_crashes.py` processes that are
killed.
"""

from __future__ import annotations

import os
import pickle
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.errors import DuralogError, StoreLocked, UnknownTopic
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from duralog.format.topic_partition import TopicPartition
from duralog.spark.jobs.holding import hold
from duralog.storage.borrowed_partition import Loan, borrow, borrow_folder
from duralog.storage.compaction.cleaner_checkpoint import CleanerCheckpoint
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory
from tests.support.forked_child import fork
from tests.support.storage.store_directory import contents

MARKER = ".kafka_cleanshutdown"
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two partitions with three segments each, closed in order."""
    with duralog.open(str(tmp_path), config={"log.cleaner.enable": False}) as store:
        store.create_topic("orders", 2, {"cleanup.policy": "compact"})
        for number in range(2):
            for _ in range(2):
                log = store.partition("orders", number)
                log.append([Record(key=b"%d" % (place % 3), value=b"v") for place in range(9)])
                log.roll()
    assert (tmp_path / MARKER).exists()
    return tmp_path


def checkpoint(path: Path, name: str) -> dict[TopicPartition, int]:
    return dict(LogDirectory(LocalFileSystem(), str(path)).read_checkpoint(name))


def offsets(path: Path, number: int) -> list[int]:
    with duralog.open(str(path), read_only=True) as store:
        return [record.offset for record in store.partition("orders", number).read(0)]


def test_what_a_job_does_is_there_afterwards(path: Path) -> None:
    with hold(str(path)) as held:
        assert list(held.partitions) == [FIRST, SECOND]
        assert not (path / MARKER).exists()
        for partition in held.partitions:
            with borrow(pickle.loads(pickle.dumps(held.lend(partition)))) as found:
                found.cleaner.compact(partition, found.log)
    assert (path / MARKER).exists()
    assert checkpoint(path, CLEANER_OFFSET_CHECKPOINT) == {FIRST: 18, SECOND: 18}
    assert checkpoint(path, RECOVERY_POINT_CHECKPOINT) == {FIRST: 18, SECOND: 18}
    assert offsets(path, 0) == offsets(path, 1) == [15, 16, 17]
    assert not list(path.glob("*/*.deleted"))


def test_the_directory_is_refused_to_others_meanwhile(path: Path) -> None:
    with hold(str(path)) as held:
        with pytest.raises(StoreLocked):
            duralog.open(str(path))
        with pytest.raises(StoreLocked), hold(str(path)):
            pass
        loan = held.lend(FIRST)
    with duralog.open(str(path)), pytest.raises(StoreLocked), borrow(loan):
        pass
    with pytest.raises(StoreLocked), borrow(loan):
        pass


def test_a_task_that_fails_gives_its_partition_back(path: Path) -> None:
    def task(loan: Loan) -> None:
        with borrow(loan) as found:
            found.cleaner.compact(FIRST, found.log)
            raise RuntimeError

    with hold(str(path)) as held:
        with pytest.raises(RuntimeError):
            task(held.lend(FIRST))
        with borrow_folder(held.lend(FIRST)) as folder:
            assert folder.was_in_order
            folder.is_in_order = True
    assert (path / MARKER).exists()


def test_a_child_that_a_task_forks_leaves_the_partition_to_it(path: Path) -> None:
    mine = os.getpid()
    try:
        with hold(str(path)) as held, borrow(held.lend(FIRST)) as found:
            found.log.append([Record(key=b"k", value=b"v")])
            before = contents(path)
            child = fork()
            if child == 0:
                raise KeyboardInterrupt
            assert os.waitpid(child, 0)[1] == 0
            assert contents(path) == before
            found.log.append([Record(key=b"k", value=b"v")])
    except BaseException as error:
        if os.getpid() != mine:
            os._exit(0 if isinstance(error, KeyboardInterrupt) else 1)
        raise
    assert (path / MARKER).exists()
    assert offsets(path, 0)[-1] == 19


def test_a_partition_that_was_not_given_back_is_recovered(path: Path) -> None:
    """By the next task, and what was torn is gone then."""
    log_file = sorted((path / "orders-0").glob("*.log"))[-1]
    with hold(str(path)) as held:
        with borrow(held.lend(FIRST)) as found:
            found.log.append([Record(key=b"k", value=b"v")])
        with borrow_folder(held.lend(FIRST)), log_file.open("ab") as file:
            file.write(b"torn")
        with borrow_folder(held.lend(FIRST)) as folder:
            assert not folder.was_in_order
        with borrow(held.lend(FIRST)) as found:
            assert found.log.end_offset == 19
    assert (path / MARKER).exists()
    assert b"torn" not in log_file.read_bytes()


def test_without_being_given_back_the_directory_is_not_closed_in_order(path: Path) -> None:
    with hold(str(path)) as held, borrow_folder(held.lend(SECOND)):
        pass
    assert not (path / MARKER).exists()


def test_a_job_in_doubt_leaves_no_marker(path: Path) -> None:
    with hold(str(path)) as held:
        held.mark_in_doubt()
    assert not (path / MARKER).exists()


def test_a_directory_that_was_not_closed_in_order_needs_all_partitions(path: Path) -> None:
    (path / MARKER).unlink()
    with hold(str(path)) as held, borrow(held.lend(FIRST)):
        pass
    assert not (path / MARKER).exists()
    with hold(str(path)) as held:
        for partition in held.partitions:
            with borrow(held.lend(partition)):
                pass
    assert (path / MARKER).exists()


def test_tasks_change_their_own_lines_of_a_checkpoint(path: Path) -> None:
    """Also if another one has written since they looked."""
    with (
        hold(str(path)) as held,
        borrow_folder(held.lend(FIRST)) as first,
        borrow_folder(held.lend(SECOND)) as second,
    ):
        checkpoints = [CleanerCheckpoint(folder.directory) for folder in (first, second)]
        checkpoints[0].put(FIRST, 3)
        checkpoints[1].put(SECOND, 4)
        checkpoints[1].put(FIRST, 99)
        for found in checkpoints:
            found.write()
        assert checkpoint(path, CLEANER_OFFSET_CHECKPOINT) == {FIRST: 3, SECOND: 4}
        checkpoints[0].forget([FIRST])
        checkpoints[0].write()
        assert checkpoint(path, CLEANER_OFFSET_CHECKPOINT) == {SECOND: 4}


def test_the_marker_stays_away_when_a_task_does_not_end(path: Path) -> None:
    tasks = ExitStack()

    def job() -> None:
        with hold(str(path), patience_seconds=0) as held:
            tasks.enter_context(borrow_folder(held.lend(FIRST)))

    with pytest.raises(DuralogError, match="still running"):
        job()
    with pytest.raises(StoreLocked):
        duralog.open(str(path))
    tasks.close()
    assert not (path / MARKER).exists()
    duralog.open(str(path)).close()


def test_without_metadata_the_folders_decide(path: Path) -> None:
    for file in (path / "__cluster_metadata-0").glob("*.log"):
        file.write_bytes(b"\xff" * 200)
    with hold(str(path), with_metadata=False) as held:
        assert list(held.partitions) == [FIRST, SECOND]
        assert held.was_clean
    assert (path / MARKER).exists()


@pytest.mark.parametrize("folder", ["nowhere", "orders-0"])
def test_what_is_no_directory_of_logs_is_refused_and_not_made(path: Path, folder: str) -> None:
    with pytest.raises(DuralogError, match=f"{folder}: "), hold(str(path / folder)):
        pass
    assert not (path / "nowhere").exists()


def test_what_is_no_disk_is_refused() -> None:
    with pytest.raises(DuralogError, match=r"^s3://bucket/logs: this job needs a directory that"):
        hold("s3://bucket/logs").__enter__()


@pytest.mark.parametrize("with_metadata", [True, False])
def test_a_directory_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, with_metadata: bool) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(DuralogError, match="no log files in here"):
        hold(str(tmp_path), with_metadata=with_metadata).__enter__()
    assert [file.name for file in tmp_path.iterdir()] == ["photos"]


def test_a_partition_that_is_not_there_cannot_be_lent(path: Path) -> None:
    with hold(str(path)) as held, pytest.raises(UnknownTopic, match="orders-7"):
        held.lend(TopicPartition("orders", 7))


def test_a_loan_is_a_small_thing(path: Path) -> None:
    with hold(str(path)) as held:
        loan = held.lend(FIRST)
        assert len(pickle.dumps(loan)) < 8192
        assert isinstance(pickle.loads(pickle.dumps(loan)), Loan)


def test_a_deletion_that_a_crash_interrupted_is_finished_though_the_name_is_another_topics_now(
    path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    saved = tmp_path_factory.mktemp("saved") / "orders-0"
    (path / "orders-0").rename(saved)
    with duralog.open(str(path), config={"log.segment.delete.delay.ms": 0}) as store:
        store.delete_topic("orders")
        store.create_topic("orders", 2)
    shutil.rmtree(path / "orders-0")
    saved.rename(path / "orders-0")
    with hold(str(path)) as held:
        assert list(held.partitions) == [SECOND]
        with borrow(held.lend(SECOND)) as found:
            assert found.log.end_offset == 0
    assert not list(path.glob("orders-0*"))
    with duralog.open(str(path)) as store:
        assert not store.offline
        assert store.partition("orders", 0).end_offset == 0
