"""The levels of CPU that code is made for, by machine: the best first."""

from __future__ import annotations

import platform
from typing import NamedTuple


class Level(NamedTuple):
    name: str
    """As LLVM names the CPU, and as `DURALOG_KERNELS` does."""
    features: str
    """For numba, which does not derive them from the name."""
    c_name: str
    supported: str
    """In C: whether this CPU can run it."""


_LEVELS = {
    "x86_64": (
        # AVX-512; AVX2, as CPUs have it since 2013 or 2015; and the least that numpy's wheels run on.
        Level("x86-64-v4", "+sse4.2,+crc32,+avx2,+avx512f", "v4", '__builtin_cpu_supports("x86-64-v4")'),
        Level("x86-64-v3", "+sse4.2,+crc32,+avx2", "v3", '__builtin_cpu_supports("x86-64-v3")'),
        Level("x86-64-v2", "+sse4.2,+crc32", "v2", '__builtin_cpu_supports("x86-64-v2")'),
    ),
    "aarch64": (Level("generic", "", "generic", "1"),),
}


def levels_here() -> tuple[Level, ...]:
    """None for a machine that no code is made for."""
    return _LEVELS.get(platform.machine(), ())


def level_named(name: str) -> Level:
    return next(level for level in levels_here() if level.name == name)
