"""Keeps the collector of garbage from looking at what numba, pyarrow and PySpark have loaded.

Spark's Python workers collect all garbage after every task and every step of planning. There is none among modules, but
all of them are looked at each time.
"""

from __future__ import annotations

import gc

_frozen = False


def freeze_imports() -> None:
    """To be called in a worker when all is loaded. Only the first call does something."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.freeze()
