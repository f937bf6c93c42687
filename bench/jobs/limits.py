from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import GIGABYTES, Contender, Job, Run, Setting
from bench.workers.passes import WARM_UP


def _limit(what: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        log = setting.segment("none").path
        command = [
            sys.executable,
            "-m",
            "bench.workers.limits",
            what,
            str(log),
            str(setting.scratch),
            str(setting.passes),
        ]
        return Run(command=command, warm_up=WARM_UP)

    return prepare


JOB = Job(
    name="limits",
    title="What the machine can do",
    unit=GIGABYTES,
    about=(
        "One thread each. A copy of 256 MB of memory by numpy; the segment read into a buffer of 4 MB from the page "
        "cache; 512 MB written to a new file, without and with `fsync`; CRC-32C of 256 MB of memory by the `crc32c` "
        "package. The other jobs are to be read next to these."
    ),
    contenders=(
        Contender("memory copy", _limit("memory-copy")),
        Contender("page-cache read", _limit("page-cache-read")),
        Contender("write", _limit("write")),
        Contender("write and fsync", _limit("write-and-sync")),
        Contender("CRC-32C", _limit("crc32c")),
    ),
)
