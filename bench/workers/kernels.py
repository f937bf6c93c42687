"""Kernels made ready to run: compiled, or loaded from the cache. Prints how many there are.

`compaction` for those that nothing but compaction needs, `others` for the rest, no argument for all.
"""

from __future__ import annotations

import sys

from duralog.kernels.compilation import catalog
from duralog.kernels.compile import Kernel

COMPACTION = {"key_digests", "key_walk", "offset_map", "rebuild", "transcribe"}


def all_kernels() -> list[Kernel]:
    return [kernel for kernels in _by_module().values() for kernel in kernels]


def kernels_of(part: str) -> list[Kernel]:
    is_wanted = part == "compaction"
    return [kernel for name, found in _by_module().items() if (name in COMPACTION) is is_wanted for kernel in found]


def _by_module() -> dict[str, list[Kernel]]:
    found: dict[str, list[Kernel]] = {}
    for kernel in catalog.all_kernels().values():
        found.setdefault(kernel.function.__module__.rpartition(".")[2], []).append(kernel)
    assert set(found) >= COMPACTION
    return found


if __name__ == "__main__":
    kernels = kernels_of(sys.argv[1]) if len(sys.argv) > 1 else all_kernels()
    if not kernels:
        raise SystemExit("no kernels were found")
    for kernel in kernels:
        kernel.prepare()
    print(len(kernels))
