"""The CPU time and the memory of this process and all that it started: a JVM, its Python workers, a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.workers.passes import tell

_TICKS = os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Tells of a pass over the data when the block ends: `amount` is to be set in it."""

    amount: float = 0

    def __enter__(self) -> Stopwatch:
        self._cpu = cpu_seconds()
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        seconds = time.perf_counter() - self._start
        if kind is None:
            tell(seconds, cpu_seconds() - self._cpu, self.amount, peak_bytes=peak_bytes())


def cpu_seconds() -> float:
    """With that of children that have ended and were waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _stats()) / _TICKS


def peak_bytes() -> int:
    """The sum of what each process that is still there had at its peak: more than all had at once."""
    total = 0
    for number in _tree():
        with suppress(OSError):
            for line in Path(f"/proc/{number}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1]) * 1024
    return total


def _stats() -> Iterator[list[str]]:
    for number in _tree():
        with suppress(OSError):
            yield _fields(Path(f"/proc/{number}/stat"))


def _tree() -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(_fields(path)[1])
    found = [os.getpid()]
    for number in found:
        found += [child for child, parent in parents.items() if parent == number]
    return found


def _fields(path: Path) -> list[str]:
    """From the state on: the name before it may have anything in it."""
    return path.read_text().rpartition(")")[2].split()
