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
    title="Scan headers and check CRCs",
    unit=GIGABYTES,
    about=(
        "Reads every batch header and checks every CRC-32C, from the page cache, uncompressed. Kafka: what its "
        "recovery does to the bytes of a segment (`FileRecords.batches()`, `ensureValid`), without indexes and "
        f"producer state, in a JVM that has scanned the same file {_JVM_WARM_UP} times before. Two threads take half "
        "of the file each, cut at a batch border; finding the cut is not timed for either."
    ),
    contenders=(
        Contender("duralog, 1 thread", _duralog(1)),
        Contender("duralog, 2 threads", _duralog(2)),
        Contender("Kafka, 1 thread", _kafka(1), is_peer=True),
        Contender("Kafka, 2 threads", _kafka(2), is_peer=True),
    ),
    compare_with="Kafka, 1 thread",
    limit="page-cache read",
    targets=(Target("duralog, 1 thread", 4.0), Target("duralog, 2 threads", 7.0)),
)
