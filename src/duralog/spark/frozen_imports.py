"""Excludes what numba, pyarrow and PySpark have loaded from garbage collection.

Spark's Python workers collect all garbage after every task and every step of planning. Modules have none, but the
collector visits all of them each time.
"""

from __future__ import annotations

import gc

_frozen = False


def freeze_imports() -> None:
    """Call it in a worker when all is loaded. Only the first call has an effect."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.freeze()
