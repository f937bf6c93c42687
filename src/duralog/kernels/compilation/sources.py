"""The digest of everything that machine code depends on: kernels, the constants in them, and the compiler's options.

Machine code is only used with the sources that it was made from. numba's own cache notices an edit of the file that a
kernel is in, but not of the files that it calls or takes constants from.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from duralog.errors import Fault

OPTIONS: Any = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}
"""Kernels allocate nothing. So `_nrt` is off: numba would count references to arrays, atomically, at every call."""

_PACKAGE = Path(__file__).parents[2]
_COMPILERS = ("cpu.py", "levels.py", "numba_names.py", "objects.py", "wrappers.py")
"""The others of this folder change neither what is compiled nor how it is called."""
_CONSTANTS = ("format/layout.py", "format/lz4_frame.py", "format/murmur2.py")


@cache
def digest_of_sources() -> str:
    digest = hashlib.sha256(repr((OPTIONS, list(Fault))).encode())
    kernels = _PACKAGE / "kernels"
    compilers = [kernels / "compilation" / name for name in _COMPILERS]
    sources = [path for path in sorted(kernels.rglob("*.py")) if path.parent.name != "compilation"] + compilers
    sources += [_PACKAGE / name for name in _CONSTANTS]
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
