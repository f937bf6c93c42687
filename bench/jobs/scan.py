from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import GIGABYTES, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP

_JVM_WARM_UP = 4


def _duralog(threads: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment("none").path
        command = [sys.executable, "-m", "bench.workers.scan", str(log), str(threads), str(setting.passes)]
        return Run(command=command, warm_up=WARM_UP)

    return prepare


def _kafka(threads: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment("none").path
        passes = _JVM_WARM_UP + setting.passes
        command = ["java", "-cp", setting.kafka_class_path(), "TimedScan", str(log), str(threads), str(passes)]
        return Run(command=command, warm_up=_JVM_WARM_UP)

    return prepare


JOB = Job(
    name="scan",
    title="Header scan with CRC check",
    unit=GIGABYTES,
    about=(
        "Every batch header read and every CRC-32C checked, from the page cache, uncompressed. Kafka: what its "
        "recovery does to the bytes of a segment (`FileRecords.batches()`, `ensureValid`), without indexes and "
        f"producer state, in a JVM that has scanned the same file {_JVM_WARM_UP} times before. Two threads: each takes "
        "one half of the file, cut at a batch border; finding the cut is not timed on either side."
    ),
    contenders=(
        Contender("duralog, 1 thread", _duralog(1)),
        Contender("duralog, 2 threads", _duralog(2)),
        Contender("Kafka, 1 thread", _kafka(1)),
        Contender("Kafka, 2 threads", _kafka(2)),
    ),
    compare_with="Kafka, 1 thread",
    targets=(Target("duralog, 1 thread", 4.0), Target("duralog, 2 threads", 7.0)),
)
