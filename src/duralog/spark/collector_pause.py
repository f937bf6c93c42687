"""No collection of garbage while very many objects are made that all stay.

The collector looks at all objects again whenever their number has grown by a quarter. Planning a hundred thousand
segments makes millions of them and no garbage that refers to itself, and that looking was half of its time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Of several threads, the first one that pauses it lets it go on, whatever the others do meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
