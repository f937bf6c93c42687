from __future__ import annotations

import sys

from bench import store_data
from bench.job import SECONDS, Contender, Job, Run, Setting, Target

_RECORDS_A_PARTITION = 9000
"""By this, a full run has 1,000 partitions."""


def _arguments(setting: Setting) -> list[str]:
    partitions = min(max(setting.records // _RECORDS_A_PARTITION, 2), 1000)
    master = store_data.of_many_partitions(partitions)
    return [str(store_data.copied(master, setting.scratch / "store")), str(partitions), "1"]


def _duralog(setting: Setting) -> Run:
    return Run(command=[sys.executable, "-m", "bench.workers.open_store", "cold", *_arguments(setting)])


def _kafka(setting: Setting) -> Run:
    worker = [sys.executable, "-m", "bench.workers.open_kafka"]
    return Run(command=[*worker, *_arguments(setting), setting.kafka_class_path()])


JOB = Job(
    name="store-open",
    title="Opening after a clean stop",
    unit=SECONDS,
    about=(
        f"A directory of 1,000 partitions (a quick run: 250) with {store_data.SEGMENTS_EACH} small segments each, "
        "closed well; a fresh copy for each run. duralog: a new process, from before `import duralog` to the open "
        "store, so that loading Python modules and kernels (about a second) is counted. Kafka: a new broker, as in "
        "`recovery`."
    ),
    contenders=(Contender("duralog", _duralog), Contender("Kafka", _kafka)),
    compare_with="Kafka",
    targets=(Target("duralog", 3.0),),
    rounds=3,
)
