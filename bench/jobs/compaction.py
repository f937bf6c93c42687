"""Compaction against Kafka's cleaner, and its peak memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from bench.compaction_data import make_partition, partition
from bench.job import MEGABYTES, PEAK_MEGABYTES, Contender, Job, Run, Setting, Target

_MAP_BYTES = 128 << 20


def _duralog(codec: str, workers: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        _make_two(setting, codec)
        return Run(command=[*_WORKER, str(workers), str(setting.scratch / "log")], warm_up=1)

    return prepare


def _kafka(codec: str, *, warm_up: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        _make_two(setting, codec)
        partitions = [str(partition(setting.scratch / "log", number)) for number in range(warm_up + 1)]
        configs = json.dumps({"segment.bytes": 1 << 30})
        java = ["java", "-Xmx1g", "-cp", setting.kafka_class_path(), "TimedCompaction"]
        return Run(command=[*java, str(_MAP_BYTES), configs, *partitions], warm_up=warm_up)

    return prepare


def _make_two(setting: Setting, codec: str) -> None:
    for number in range(2):
        make_partition(partition(setting.scratch / "log", number), setting.segment(codec))


def _memory(copies: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        make_partition(partition(setting.scratch / "log", 0), setting.segment("none"), copies=copies)
        return Run(command=[*_WORKER, "1", str(setting.scratch / "log")])

    return prepare


_WORKER = (sys.executable, "-m", "bench.workers.compact")
_ABOUT = (
    "One partition with the segment, {what}; one record in nine is the last of its key. Timed: both passes, the sync "
    "of the new segment and the swap, on a fresh copy in the page cache; not the recovery before. duralog: "
    "`store.compact`. Kafka: its `Cleaner` on one thread, as its broker cleans one log. Both have an offset map of 128 "
    "MiB and have compacted another copy of the log in the same process before. `Kafka, its first log` has not."
)


def _against_kafka(name: str, codec: str, what: str, on_one: float, on_two: float) -> Job:
    return Job(
        name=name,
        title=f"Compaction, {what}",
        unit=MEGABYTES,
        about=_ABOUT.format(what=what),
        contenders=(
            Contender("duralog, 1 thread", _duralog(codec, 1)),
            Contender("duralog, 2 threads", _duralog(codec, 2)),
            Contender("Kafka", _kafka(codec, warm_up=1), is_peer=True),
            Contender("Kafka, its first log", _kafka(codec, warm_up=0), is_peer=True),
        ),
        compare_with="Kafka",
        targets=(
            Target("duralog, 1 thread", on_one, than="Kafka"),
            Target("duralog, 2 threads", on_two, than="Kafka"),
        ),
        rounds=5,
    )


JOBS = (
    _against_kafka("compact", "none", "uncompressed", 8.0, 12.0),
    _against_kafka("compact-lz4", "lz4", "lz4", 3.5, 6.0),
    Job(
        name="compact-memory",
        title="Memory of a compaction",
        unit=PEAK_MEGABYTES,
        about=(
            "Peak memory of the whole process (Python, libraries and the recovery of the log included) while one "
            "thread compacts an uncompressed log of one, two and four copies of the segment. The offset map may take "
            "128 MiB."
        ),
        contenders=tuple(Contender(f"duralog, {copies} GB", _memory(copies)) for copies in (1, 2, 4)),
        rounds=1,
    ),
)
