"""What a segment has to know of a batch to write and to index it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Extent = tuple[int, int, int, int]
"""Position, size, last offset, largest timestamp.

Of several batches that are written together, positions count from the first byte of the first one.
"""

_COLUMNS = ["position", "size", "last_offset", "max_timestamp"]


def extents(rows: NDArray[Any]) -> list[Extent]:
    """Of rows of `BATCH_DTYPE`."""
    found: list[Extent] = rows[_COLUMNS].tolist()
    return found
