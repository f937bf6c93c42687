"""The properties of a batch that a segment needs to write and index it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Extent = tuple[int, int, int, int]
"""Position, size, last offset, largest timestamp.

If several batches are written together, positions are relative to the first byte of the first batch.
"""

_COLUMNS = ["position", "size", "last_offset", "max_timestamp"]


def extents(rows: NDArray[Any]) -> list[Extent]:
    """The extents of `BATCH_DTYPE` rows."""
    found: list[Extent] = rows[_COLUMNS].tolist()
    return found
