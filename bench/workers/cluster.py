"""What is done with the directories of three nodes, on two threads: WORK FOLDER TOPIC PASSES.

`heal` and `copy` take the log of the third node away before each pass, and bring it back: FOLDER is a copy of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duralog
from bench.workers.passes import timed
from duralog.operations.cluster.explain import ClusterRequest
from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.operations.cluster.verify import verify_cluster
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.sources import plan_cluster

_THREADS = 2
Work = tuple[Callable[[], int], Callable[[], None] | None]
"""A pass, which returns its amount, and what comes before it."""


def verify(folder: Path, _: str) -> Work:
    def work() -> int:
        report = verify_cluster(ClusterRequest(paths=[f"{folder}/broker-*"]))
        assert report.is_sound
        return report.size_bytes

    return work, None


def plan(folder: Path, _: str) -> Work:
    def work() -> int:
        with open_cluster(f"{folder}/broker-*") as cluster:
            return len(plan_cluster(cluster, cluster.all_partitions()).slices)

    return work, None


def read_one(folder: Path, topic: str) -> Work:
    return _read(str(folder / "broker-1"), topic), None


def read_three(folder: Path, topic: str) -> Work:
    return _read(f"{folder}/broker-*", topic), None


def _read(paths: str, topic: str) -> Callable[[], int]:
    def work() -> int:
        found: Any = duralog.scan(paths, topic=topic, threads=_THREADS)
        return sum(batch.num_rows for batch in found.to_arrow_batch_reader())

    return work


def heal(folder: Path, topic: str) -> Work:
    (path,) = _logs(folder, 1, topic)
    lost = folder / "broker-3" / path.parent.name

    def work() -> int:
        report = heal_cluster(HealRequest(paths=[f"{folder}/broker-*"]))
        assert report.is_well
        return sum(copy.plan.filled_bytes for copy in report.healed)

    def before() -> None:
        for each in lost.glob(f"{path.stem}.*"):
            each.unlink()
        (lost / path.name).touch()

    return work, before


def copy(folder: Path, topic: str) -> Work:
    """The same bytes to the same place, durably."""
    (path,) = _logs(folder, 1, topic)
    target = folder / "broker-3" / path.parent.name / path.name

    def work() -> int:
        shutil.copyfile(path, target)
        with target.open("rb+") as file:
            os.fsync(file.fileno())
        return target.stat().st_size

    return work, lambda: target.unlink(missing_ok=True)


def _logs(folder: Path, node: int, topic: str) -> list[Path]:
    return [path for path in (folder / f"broker-{node}" / f"{topic}-0").glob("*.log") if path.stat().st_size]


WORKS: dict[str, Callable[[Path, str], Work]] = {
    work.__name__: work for work in (verify, plan, read_one, read_three, heal, copy)
}

if __name__ == "__main__":
    name, folder, topic, passes = sys.argv[1:]
    work, before = WORKS[name](Path(folder), topic)
    timed(work, int(passes), before=before)
