"""What a second attempt of a task does, and a task on a machine that has other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from duralog.errors import StorageError, StoreLocked
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.heal_tasks import (
    Directories,
    HealWork,
    Loan,
    PlanWork,
    Target,
    heal_in_task,
    seen_copies,
)
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.heal_plan import PartitionPlan
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.scanning.executor import ignore_progress
from duralog.storage.disk.lent_lock import LentLock, SlotState
from duralog.storage.disk.local_lock import LocalLock
from tests.support.cluster.made import TOPIC, flip, logs, three_nodes

JOB = "0123456789abcdef0123456789abcdef"
PARTITION = TopicPartition(TOPIC, 0)


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    return three_nodes(tmp_path)


def damage_two(nodes: list[Path]) -> PartitionPlan:
    for node, number in zip(nodes, (1, 2), strict=False):
        flip(logs(node)[number], 300)
    with open_cluster(nodes) as cluster:
        return plan_heal(cluster, cluster.copies(PARTITION))


@contextmanager
def lent(nodes: list[Path], plan: PartitionPlan) -> Iterator[tuple[HealWork, dict[str, LentLock]]]:
    targets: dict[str, Target] = {}
    locks: dict[str, LentLock] = {}
    for node in nodes[:2]:
        path = str(node / ".lock")
        locks[str(node)] = LentLock(LocalLock(path), JOB, 1)
        targets[str(node)] = Target(path=str(node), log_start_offset=0, loan=Loan(path, JOB, 0))
    try:
        yield HealWork(plan=plan, targets=targets), locks
    finally:
        for lock in locks.values():
            lock.take_back(0)
            lock.release()


def test_a_task_that_is_repeated_after_its_end_changes_nothing(nodes: list[Path]) -> None:
    whole = [path.read_bytes() for path in logs(nodes[2])]
    with lent(nodes, damage_two(nodes)) as (work, locks):
        assert [outcome.failure for outcome in heal_in_task(work)] == [None, None]
        assert [lock.states() for lock in locks.values()] == [[SlotState.RETURNED]] * 2
        before = {path: path.stat().st_mtime_ns for node in nodes for path in node.rglob("*") if path.name != ".lock"}
        assert [outcome.failure for outcome in heal_in_task(work)] == [None, None]
        assert before == {path: path.stat().st_mtime_ns for path in before}
    assert all([path.read_bytes() for path in logs(node)] == whole for node in nodes)


def test_a_task_that_is_repeated_after_it_was_lost_leaves_its_copies_for_the_next_heal(
    nodes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    class MachineLost(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise MachineLost

    with lent(nodes, damage_two(nodes)) as (work, _):
        with monkeypatch.context() as patch:
            patch.setattr("duralog.storage.repair.healed_log.rewrite_segment", die)
            with pytest.raises(MachineLost):
                heal_in_task(work)
        before = {path: path.read_bytes() for node in nodes for path in logs(node)}
        outcomes = heal_in_task(work)
        assert all("a task was lost" in str(outcome.failure) and outcome.is_in_doubt for outcome in outcomes)
        assert before == {path: path.read_bytes() for path in before}


def test_a_task_of_a_job_that_has_ended_changes_nothing(nodes: list[Path]) -> None:
    with lent(nodes, damage_two(nodes)) as (work, _):
        pass
    before = {path: path.read_bytes() for node in nodes for path in logs(node)}
    with pytest.raises(StoreLocked, match="does not hold the directory"):
        heal_in_task(work)
    assert before == {path: path.read_bytes() for path in before}


def test_a_machine_that_has_other_files_does_not_plan(nodes: list[Path]) -> None:
    with open_cluster(nodes) as cluster:
        work = PlanWork(partition=PARTITION, seen=seen_copies(cluster.copies(PARTITION)))
    directories = Directories(urls=tuple(map(str, nodes)), storage_options={})
    assert len(directories.plan([work], ignore_progress)) == 1
    logs(nodes[1])[-1].unlink()
    with pytest.raises(StorageError, match="does not see the files that the driver sees"):
        directories.plan([work], ignore_progress)
    with pytest.raises(StorageError, match="all machines need the directories at the same paths"):
        replace(directories, urls=directories.urls[:1]).plan([work], ignore_progress)
