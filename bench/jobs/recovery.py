from __future__ import annotations

import sys

from bench import store_data
from bench.job import GIGABYTES, Contender, Job, Run, Setting, Target

# Without these a directory counts as left by a crash, with nothing known to be on disk.
_SIGNS_OF_A_CLEAN_STOP = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint")


def _arguments(setting: Setting) -> list[str]:
    segment = setting.segment("none")
    directory = store_data.copied(
        store_data.of_segments(segment), setting.scratch / "store", leave_out=_SIGNS_OF_A_CLEAN_STOP
    )
    partitions = store_data.PARTITIONS_OF_SEGMENTS
    return [str(directory), str(partitions), str(partitions * segment.size_bytes)]


def _duralog(setting: Setting) -> Run:
    return Run(command=[sys.executable, "-m", "bench.workers.open_store", "warm", *_arguments(setting)])


def _kafka(setting: Setting) -> Run:
    worker = [sys.executable, "-m", "bench.workers.open_kafka"]
    return Run(command=[*worker, *_arguments(setting), setting.kafka_class_path()])


JOB = Job(
    name="recovery",
    title="Recovery after a crash",
    unit=GIGABYTES,
    about=(
        "A directory of two partitions, each with the segment, opened without a sign of a clean stop and without a "
        "recovery point: every batch is checked and every index is built anew, on two threads for both (Kafka's "
        "default). A fresh copy for each run, in the page cache and on disk. duralog: `duralog.open` in a process that "
        "has recovered a directory with one record before. Kafka: a new broker, the time that its log manager tells "
        "for loading the logs, which it does after it has recovered its metadata log. So the start of Python, of the "
        "JVM and of the rest of the broker is not counted, but the broker's CPU seconds and memory are."
    ),
    contenders=(Contender("duralog", _duralog), Contender("Kafka", _kafka)),
    compare_with="Kafka",
    targets=(Target("duralog", 3.0, than="Kafka"),),
    rounds=3,
)
