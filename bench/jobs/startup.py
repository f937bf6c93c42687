from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import SECONDS, Contender, Job, Run, Setting, Target

_ALL_KERNELS = ("-m", "bench.workers.kernels")


def _python(*arguments: str) -> Callable[[Setting], Run]:
    return lambda _: Run(command=[sys.executable, *arguments], amount=1)


def _compile(*part: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        empty = setting.scratch / "empty-cache"
        empty.mkdir(mode=0o700)
        command = [sys.executable, *_ALL_KERNELS, *part]
        return Run(command=command, amount=1, environment={"DURALOG_CACHE_DIR": str(empty), "DURALOG_KERNELS": "numba"})

    return prepare


JOB = Job(
    name="startup",
    title="Start-up",
    unit=SECONDS,
    about=(
        "Whole processes, the start of Python included. Kernels: every kernel of `duralog.kernels` is made ready to "
        "run: compiled by numba, or loaded, as a wheel has them or from numba's cache. The kernels that only "
        "compaction needs are compiled at the first compaction, so they are also measured apart from the others."
    ),
    contenders=(
        Contender("python, nothing imported", _python("-c", "pass")),
        Contender("import duralog", _python("-c", "import duralog")),
        Contender("duralog --help", _python("-m", "duralog", "--help")),
        Contender("all kernels, loaded", _python(*_ALL_KERNELS)),
        Contender("all kernels, compiled", _compile()),
        Contender("kernels of compaction, compiled", _compile("compaction")),
        Contender("the other kernels, compiled", _compile("others")),
    ),
    limit="python, nothing imported",
    targets=(Target("import duralog", 0.3), Target("the other kernels, compiled", 15.0)),
)
