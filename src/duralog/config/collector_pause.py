"""No garbage collection while very many objects are made that all stay.

The collector visits all objects again whenever their number has grown by a quarter. For a hundred thousand segments
these are millions, without garbage among them: half of the time of a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """If several threads pause the collector, the first one that is done resumes it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
