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
        "A directory of two partitions, each with the segment, opened without the clean shutdown file and without a "
        "recovery point: both check every batch and rebuild every index, on two threads (Kafka's default). Each run "
        "has a fresh copy, on disk and in the page cache. duralog: `duralog.open` in a process that has recovered a "
        "directory with one record before. Kafka: a new broker, the time that its log manager reports for loading the "
        "logs, which starts after the metadata log is recovered. The start of Python, of the JVM and of the rest of "
        "the broker is not counted, but the broker's CPU seconds and memory are."
    ),
    contenders=(Contender("duralog", _duralog), Contender("Kafka", _kafka, is_peer=True)),
    compare_with="Kafka",
    limit="page-cache read",
    targets=(Target("duralog", 3.0, than="Kafka"),),
    rounds=3,
)
