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
    title="Limits of the machine",
    unit=GIGABYTES,
    about=(
        "On one thread: numpy copies 256 MB of memory; the segment is read from the page cache into a buffer of 4 MB; "
        "512 MB are written to a new file, without and with `fsync`; the `crc32c` package checks 256 MB of memory."
    ),
    contenders=(
        Contender("memory copy", _limit("memory-copy")),
        Contender("page-cache read", _limit("page-cache-read")),
        Contender("write", _limit("write")),
        Contender("write and fsync", _limit("write-and-sync")),
        Contender("CRC-32C", _limit("crc32c")),
    ),
)
