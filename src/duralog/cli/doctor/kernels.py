"""Checks that the kernels are compiled, that their cache lasts, and that checksums run on the CPU's instruction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine
from duralog.cli.voice.tables import plural

_CACHE = Subject("kernel cache", "kernels are compiled once and kept there; without it every start compiles again")
_KERNELS = Subject("kernels", "a kernel that is not compiled takes seconds at its first use")
_CPU = Subject("cpu", "every appended or read batch is checked by its CRC-32C")


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
