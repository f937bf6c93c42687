"""One process, its time, its CPU seconds and its peak memory.

The peak memory is the process's `ru_maxrss`. A child starts with the peak of its parent: this process
must stay small, so nothing here imports numpy, pyarrow or matplotlib.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench.job import Run

TIMEOUT_SECONDS = 900


class RunFailedError(Exception):
    """The process did not do its work. The text is for the table."""


@dataclass(frozen=True, slots=True)
class Measurement:
    amount: float
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(run: Run, scratch: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> Measurement:
    output = scratch / "stdout"
    complaints = scratch / "stderr"
    with output.open("wb") as stdout, complaints.open("wb") as stderr:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                list(run.command),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **run.environment},
            )
        except OSError as error:
            raise RunFailedError(str(error)) from error
        # The child is not waited for by `process` before `wait4`, so its id cannot belong to another process yet.
        guard = threading.Timer(timeout_seconds, process.kill)
        guard.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
        finally:
            guard.cancel()
            guard.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        if seconds >= timeout_seconds:
            raise RunFailedError(f"stopped after {timeout_seconds:.0f} s")
        raise RunFailedError(_last_line(complaints) or f"exit code {process.returncode}")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    if run.amount is not None:
        return Measurement(run.amount, seconds, cpu_seconds, usage.ru_maxrss * 1024)
    return _steady_pass(output, run.warm_up, usage.ru_maxrss * 1024)


def _steady_pass(output: Path, warm_up: int, peak_bytes: int) -> Measurement:
    passes = [json.loads(line) for line in output.read_text().splitlines()][warm_up:]
    if not passes:
        raise RunFailedError("the process printed no measured pass")
    return Measurement(
        amount=statistics.median(one["amount"] for one in passes),
        seconds=statistics.median(one["seconds"] for one in passes),
        cpu_seconds=statistics.median(one["cpu_seconds"] for one in passes),
        peak_bytes=max(one.get("peak_bytes", peak_bytes) for one in passes),
    )


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
