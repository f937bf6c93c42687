from __future__ import annotations

import sys

from bench import store_data
from bench.job import SECONDS, Contender, Job, Run, Setting, Target

_RECORDS_A_PARTITION = 9000
"""By this, a full run has 1,000 partitions."""


def _duralog(setting: Setting) -> Run:
    partitions = min(max(setting.records // _RECORDS_A_PARTITION, 2), 1000)
    directory = store_data.of_many_partitions(partitions)
    worker = [sys.executable, "-m", "bench.workers.open_store", "cold"]
    return Run(command=[*worker, str(directory), str(partitions), "1"])


JOB = Job(
    name="store-open",
    title="Opening after a clean stop",
    unit=SECONDS,
    about=(
        f"A directory of 1,000 partitions (a quick run: 250) with {store_data.SEGMENTS_EACH} small segments each, "
        "closed well. A new process, from before `import duralog` to the open store, so that loading Python modules "
        "and kernels (about a second) is counted. Afterwards the store is closed, which is not timed."
    ),
    contenders=(Contender("duralog", _duralog),),
    targets=(Target("duralog", 3.0),),
    rounds=3,
)
