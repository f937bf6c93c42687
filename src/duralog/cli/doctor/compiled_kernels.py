"""Finds out which kernels are compiled on this machine, and compiles the others.

They come compiled with the package, or numba compiles them. Then a kernel is ready when its machine code is in the
cache for this Python, this CPU and these sources. To find out, it is loaded as at its first call, but not compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class KernelFacts(NamedTuple):
    folder: str | None
    """The cache of machine code. None if the code came with the package."""
    ready: int
    missing: int
    has_crc_instruction: bool
    level: str | None = None
    """The level of CPU that the package's own code is for."""


def compile_all(show: Callable[[str], None]) -> int:
    """Compile every kernel; `show` is called with the name of each that was not ready. Returns their number."""
    import duralog.kernels.compile as compiling
    from duralog.kernels.compilation.catalog import all_kernels

    kernels = all_kernels().values()
    before = compiling.on_compile
    compiling.on_compile = show
    try:
        for kernel in kernels:
            kernel.prepare()
    finally:
        compiling.on_compile = before
    return len(kernels)


class _NotReady(Exception):
    pass


def kernel_facts() -> KernelFacts:
    import duralog.kernels.compile as compiling
    from duralog.kernels.compilation import machine_code
    from duralog.kernels.compilation.catalog import all_kernels
    from duralog.kernels.compilation.cpu import HAS_CRC_INSTRUCTION

    def refuse(name: str) -> None:
        raise _NotReady(name)

    missing = 0
    kernels = all_kernels().values()
    if machine_code.LEVEL is not None:
        return KernelFacts(None, len(kernels), 0, HAS_CRC_INSTRUCTION, machine_code.LEVEL)
    from duralog.kernels.compilation import just_in_time

    before = compiling.on_compile
    compiling.on_compile = refuse
    try:
        for kernel in kernels:
            try:
                kernel.prepare()
            except _NotReady:
                missing += 1
    finally:
        compiling.on_compile = before
    return KernelFacts(str(just_in_time.CACHE_FOLDER), len(kernels) - missing, missing, HAS_CRC_INSTRUCTION)
