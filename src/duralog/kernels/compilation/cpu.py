"""The CPU that the kernels in use are compiled for: not always this machine's, and never more than it."""

from __future__ import annotations

from duralog.kernels.compilation import machine_code
from duralog.kernels.compilation.levels import level_named
from duralog.kernels.compilation.numba_names import registry


def _features() -> frozenset[str]:
    if machine_code.LEVEL is not None:
        listed = level_named(machine_code.LEVEL).features
    else:
        # The user may have configured another CPU.
        _, _, listed = registry.cpu_target.target_context.codegen().magic_tuple()
    return frozenset(listed.split(","))


_FEATURES = _features()
HAS_CRC_INSTRUCTION = "+sse4.2" in _FEATURES and "-crc32" not in _FEATURES
HAS_WIDE_REGISTERS = "+avx512f" in _FEATURES
"""The 32 vector registers of AVX-512."""
