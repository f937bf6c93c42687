"""The memory of a large offset map, kept from one compaction to the next.

Some machines, above all virtual ones, are slow to hand out freed memory again: filling a new map then takes half as
long again as filling one that was used before. Small maps are not kept, and no more than one large one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from duralog.kernels.offset_map import MakeMap, OffsetMap

_LARGE_BYTES = 16 << 20


class KeptMaps:
    """Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: OffsetMap | None = None

    @contextmanager
    def lent(self) -> Iterator[MakeMap]:
        """A factory that reuses the kept map if it has the same size. Use its maps inside the context only."""
        lent: list[OffsetMap] = []

        def make(memory_bytes: int, load_factor: float) -> OffsetMap:
            with self._lock:
                spare, self._spare = self._spare, None
            if spare is None or (spare.memory_bytes, spare.load_factor) != (memory_bytes, load_factor):
                del spare
                spare = OffsetMap(memory_bytes, load_factor)
            spare.clear()
            lent.append(spare)
            return spare

        try:
            yield make
        finally:
            with self._lock:
                for used in lent:
                    if used.memory_bytes >= _LARGE_BYTES:
                        self._spare = used

    def drop(self) -> None:
        """Free the memory."""
        with self._lock:
            self._spare = None
