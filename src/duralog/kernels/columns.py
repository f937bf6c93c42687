"""The arrays that kernels fill: one row for each batch, one row for each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_DTYPE = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("base_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("producer_id", np.int64),
        ("size", np.int32),
        ("leader_epoch", np.int32),
        ("base_sequence", np.int32),
        ("record_count", np.int32),
        ("crc", np.uint32),
        ("attributes", np.int16),
        ("producer_epoch", np.int16),
        ("magic", np.int8),
        ("crc_ok", np.int8),
    ],
    align=True,
)
"""One row for each batch, with the fields of `duralog.format.batch.Batch`.

`crc_ok` is 1 or 0, and -1 where the checksum was not computed."""

PLAIN_ROW = np.dtype((np.void, BATCH_DTYPE.itemsize))
"""A row as bytes and nothing else. Rows are to be copied as such: of fields, numpy copies one after the other."""


def rows_of(batches: NDArray[Any], which: NDArray[Any]) -> NDArray[Any]:
    """A copy of the rows of `batches` with these numbers, or of those that a mask has."""
    rows: NDArray[Any] = batches.view(PLAIN_ROW)[which].view(BATCH_DTYPE)
    return rows


def copy_rows(batches: NDArray[Any]) -> NDArray[Any]:
    return batches.view(PLAIN_ROW).copy().view(BATCH_DTYPE)


def put_rows(batches: NDArray[Any], numbers: NDArray[Any], new: NDArray[Any]) -> None:
    """Replace the rows of `batches` with these numbers."""
    batches.view(PLAIN_ROW)[numbers] = new.view(PLAIN_ROW)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Decoded records as positions and lengths in the bytes that they were decoded from.

    A length of -1 means null. Nothing is copied: the columns are valid as long as those bytes are.
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    key_position: NDArray[np.int64]
    key_length: NDArray[np.int32]
    value_position: NDArray[np.int64]
    value_length: NDArray[np.int32]
    headers_position: NDArray[np.int64]
    """Where the first header starts (after the count)."""
    header_count: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order above, which is the order of the kernels' arguments."""
        return (
            self.offset,
            self.timestamp,
            self.key_position,
            self.key_length,
            self.value_position,
            self.value_length,
            self.headers_position,
            self.header_count,
        )

    def first(self, rows: int) -> RecordColumns:
        return RecordColumns(*(array[:rows] for array in self.arrays))

    @classmethod
    def empty(cls, rows: int) -> RecordColumns:
        return cls(
            offset=np.empty(rows, np.int64),
            timestamp=np.empty(rows, np.int64),
            key_position=np.empty(rows, np.int64),
            key_length=np.empty(rows, np.int32),
            value_position=np.empty(rows, np.int64),
            value_length=np.empty(rows, np.int32),
            headers_position=np.empty(rows, np.int64),
            header_count=np.empty(rows, np.int32),
        )
