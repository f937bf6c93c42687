"""Checks which kernels are compiled on this machine, and compiles the others.

They come compiled with the package, or numba compiles them. Then a kernel is ready when its machine code is in the
cache for this Python, this CPU and these sources. To find out, it is loaded as at its first call, but not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.voice.tables import plural

if TYPE_CHECKING:
    from duralog.cli.doctor.machine import Machine

_CACHE = Subject("kernel cache", "kernels are compiled once and kept there; without it every start compiles again")
_KERNELS = Subject("kernels", "a kernel that is not compiled takes seconds at its first use")
_CPU = Subject("cpu", "every appended or read batch is checked by its CRC-32C")


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


def kernel_checks(machine: Machine) -> Iterator[Check]:
    facts = machine.kernels()
    if isinstance(facts, str):
        yield _KERNELS.fail(f"they cannot be loaded: {facts}", "pip install --force-reinstall numba llvmlite numpy")
        return
    if facts.folder is not None:
        yield _cache(machine, facts.folder)
    if facts.level is not None:
        yield _KERNELS.ok(f"all {facts.ready} came compiled with the package, for {facts.level}")
    elif facts.missing:
        yield _KERNELS.warn(
            f"{facts.missing} of {plural(facts.ready + facts.missing, 'kernel')} are not compiled yet",
            "duralog doctor --compile",
        )
    else:
        yield _KERNELS.ok(f"all {facts.ready} are compiled")
    if facts.has_crc_instruction:
        yield _CPU.ok("checksums run on the CPU's own instruction (SSE4.2)")
    elif chosen := machine.environment.get("NUMBA_CPU_NAME") or machine.environment.get("NUMBA_CPU_FEATURES"):
        yield _CPU.warn(
            f"checksums run on tables, some five times slower: NUMBA_CPU_NAME or NUMBA_CPU_FEATURES says {chosen}",
            "unset them, or NUMBA_CPU_NAME=x86-64-v2 NUMBA_CPU_FEATURES=+sse4.2,+crc32",
        )
    else:
        yield _CPU.ok("checksums run on tables: no SSE4.2 here")


def _cache(machine: Machine, folder: str) -> Check:
    root = Path(folder).parent
    chosen = machine.environment.get("DURALOG_CACHE_DIR")
    if chosen and Path(chosen) != root:
        return _CACHE.warn(
            f"{root}, since DURALOG_CACHE_DIR={chosen} cannot be used: it must be a folder that only this user may"
            " write to",
            f"mkdir -p {chosen} && chown $(id -u) {chosen} && chmod 700 {chosen}",
        )
    home = machine.environment.get("XDG_CACHE_HOME") or machine.environment.get("HOME", "") + "/.cache"
    if not chosen and root != Path(home) / "duralog":
        return _CACHE.warn(
            f"{root}, a temporary folder: the one of this user, {home}/duralog, cannot be written to",
            "DURALOG_CACHE_DIR=/var/cache/duralog, a folder of this user with mode 700",
        )
    return _CACHE.ok(folder)
