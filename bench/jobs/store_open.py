from __future__ import annotations

import sys

from bench import store_data
from bench.job import SECONDS, Contender, Job, Run, Setting, Target

_RECORDS_A_PARTITION = 9000
"""A full run has 1,000 partitions."""


def _duralog(setting: Setting) -> Run:
    partitions = min(max(setting.records // _RECORDS_A_PARTITION, 2), 1000)
    directory = store_data.of_many_partitions(partitions)
    worker = [sys.executable, "-m", "bench.workers.open_store", "cold"]
    return Run(command=[*worker, str(directory), str(partitions), "1"])


JOB = Job(
    name="store-open",
    title="Open after a clean shutdown",
    unit=SECONDS,
    about=(
        f"A directory of 1,000 partitions (250 in a quick run) with {store_data.SEGMENTS_EACH} small segments each, "
        "after a clean shutdown. A new process, from before `import duralog` to the open store, so the loading of "
        "Python modules and kernels (about a second) is counted. Closing the store is not timed."
    ),
    contenders=(Contender("duralog", _duralog),),
    targets=(Target("duralog", 3.0),),
    rounds=3,
)
