"""A task of a heal is a real process on a real disk, killed with SIGKILL: the next heal does the rest.

On threads, the process that dies is the one that has the locks. What it leaves is the same.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duralog.errors import StoreLocked
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.operations.cluster.heal_tasks import HealWork, Loan, Target, heal_in_task
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.storage.disk.lent_lock import LentLock
from duralog.storage.disk.local_lock import LocalLock
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes

JOB = "0123456789abcdef0123456789abcdef"
DYING_TASK = """
import os, pickle, signal, sys
from duralog.operations.cluster.heal_tasks import heal_in_task
from duralog.storage.disk.file_system import LocalFileSystem

left = int(sys.argv[1])

def dying(operation):
    def run(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return operation(*arguments, **options)
    return run

for name in ("rename", "remove", "sync_folder", "write"):
    setattr(LocalFileSystem, name, dying(getattr(LocalFileSystem, name)))
print(heal_in_task(pickle.load(sys.stdin.buffer)))
"""


@pytest.mark.parametrize("changes", [1, 11, 22, 33])
def test_a_killed_task_is_completed_by_the_next_heal(tmp_path: Path, changes: int) -> None:
    nodes = three_nodes(tmp_path)
    whole = [path.read_bytes() for path in logs(nodes[0])]
    damaged = nodes[2]
    flip(logs(damaged)[0], 300)
    cut(logs(damaged)[2], 100)
    logs(damaged)[1].unlink()
    with open_cluster(nodes) as cluster:
        plan = plan_heal(cluster, cluster.copies(TopicPartition(TOPIC, 0)))
    lock = str(damaged / ".lock")
    lent = LentLock(LocalLock(lock), JOB, 1)
    work = HealWork(
        plan=plan, targets={str(damaged): Target(path=str(damaged), log_start_offset=0, loan=Loan(lock, JOB, 0))}
    )
    program = [sys.executable, "-c", DYING_TASK, str(changes)]
    died = subprocess.run(program, input=pickle.dumps(work), capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died
    # Spark starts the task again. It cannot know how far the first one came.
    before = [path.read_bytes() for path in logs(damaged)]
    (outcome,) = heal_in_task(work)
    assert outcome.is_in_doubt
    assert "a task was lost while it healed this copy: run heal again" in str(outcome.failure)
    assert [path.read_bytes() for path in logs(damaged)] == before
    request = HealRequest(paths=[str(node) for node in nodes])
    with pytest.raises(StoreLocked):
        heal_cluster(request)
    lent.take_back(0)
    lent.release()
    assert heal_cluster(request).is_well
    assert not heal_cluster(request).healed
    assert [path.read_bytes() for path in logs(damaged)] == whole
