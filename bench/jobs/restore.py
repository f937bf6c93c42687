from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import MEGABYTES, Contender, Job, Run, Setting, Target
from bench.workers.passes import WARM_UP


def _prepared(what: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        source = store_data.of_segments(setting.segment("none"))
        worker = [sys.executable, "-m", "bench.workers.restore"]
        return Run(command=[*worker, what, str(source), str(setting.scratch), str(setting.passes)], warm_up=WARM_UP)

    return prepare


JOB = Job(
    name="restore",
    title="Restore a topic to a new directory",
    unit=MEGABYTES,
    about=(
        "A topic of two partitions, each with the segment, from the page cache to a new directory on disk, synced. "
        "duralog: `cluster restore` as a function, on two threads: it checks every batch, builds the indexes, and for "
        "its proof decodes all records of the source and reads the result again. copy: `shutil.copytree` and `fsync` "
        "of each file, which check nothing. Bytes are those of the log."
    ),
    contenders=(Contender("duralog", _prepared("duralog")), Contender("copy", _prepared("cp"), is_peer=True)),
    compare_with="copy",
    targets=(Target("duralog", 0.67, than="copy"),),
    rounds=3,
)
