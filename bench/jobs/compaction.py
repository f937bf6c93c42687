"""Compaction: against Kafka's cleaner, and what it needs of memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from bench.compaction_data import TOPIC, log_directory
from bench.job import MEGABYTES, PEAK_MEGABYTES, Contender, Job, Run, Setting, Target

_MAP_BYTES = 128 << 20
_SMALL_RECORDS = 200_000
_JVM_WARM_UP = 2


def _duralog(codec: str, workers: int, copies: int = 1) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        small = log_directory(setting.smaller(_SMALL_RECORDS).segment(codec), setting.scratch / "small")
        directory = log_directory(setting.segment(codec), setting.scratch / "log", copies=copies)
        command = [sys.executable, "-m", "bench.workers.compact", str(directory), str(small), str(workers)]
        return Run(command=command, warm_up=1)

    return prepare


def _kafka(codec: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        small = setting.smaller(_SMALL_RECORDS).segment(codec)
        folders = [log_directory(small, setting.scratch / f"small-{number}") for number in range(_JVM_WARM_UP)]
        folders.append(log_directory(setting.segment(codec), setting.scratch / "log"))
        configs = json.dumps({"segment.bytes": 1 << 30})
        java = ["java", "-Xmx1g", "-cp", setting.kafka_class_path(), "TimedCompaction"]
        partitions = [str(folder / f"{TOPIC}-0") for folder in folders]
        return Run(command=[*java, str(_MAP_BYTES), configs, *partitions], warm_up=_JVM_WARM_UP)

    return prepare


_ABOUT = (
    "One partition with the segment, {what}, of which a record in nine has the last value of its key. Both passes, "
    "the sync of the new segment and the swap, on a fresh copy in the page cache; the recovery before it is not "
    "counted. duralog: `store.compact`. Kafka: its `Cleaner` in a JVM that has cleaned two smaller logs before, one "
    "thread, as its broker cleans one log. Both have a map of 128 MiB."
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
            Contender("Kafka", _kafka(codec)),
        ),
        compare_with="Kafka",
        targets=(
            Target("duralog, 1 thread", on_one, than="Kafka"),
            Target("duralog, 2 threads", on_two, than="Kafka"),
        ),
        rounds=3,
    )


JOBS = (
    _against_kafka("compact", "none", "uncompressed", 8.0, 12.0),
    _against_kafka("compact-lz4", "lz4", "lz4", 3.5, 6.0),
    Job(
        name="compact-memory",
        title="Memory of a compaction",
        unit=PEAK_MEGABYTES,
        about=(
            "The largest memory of the whole process, Python, its libraries and the recovery of the log included, "
            "while a log of the segment once, twice and four times is compacted on one thread, uncompressed. The map "
            "may take 128 MiB."
        ),
        contenders=tuple(
            Contender(f"duralog, {copies} GB", _duralog("none", 1, copies=copies)) for copies in (1, 2, 4)
        ),
        rounds=1,
    ),
)
