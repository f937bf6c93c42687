"""Decoded records: columns of positions into bytes, or gathered fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from duralog.errors import arrow_needed
from duralog.kernels.columns import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_RECORDS = 65_536
CHUNK_BYTES = 16 << 20
"""Chunks have at most this many records and bytes, so that they stay in the CPU's caches.

A larger record is a chunk by itself: the bytes of a chunk always fit the 32-bit offsets of Arrow."""

_FEW_CANDIDATES = 16
"""Up to this many keys are compared one by one."""


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """A chunk of records. `batch_row` is the row of `batches` that each came from."""

    data: NDArray[np.uint8]
    """The bytes that positions refer to: a piece's bytes as in the file, or decompressed ones."""
    columns: RecordColumns
    batch_row: NDArray[np.int32]
    batches: NDArray[Any]

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def offset(self) -> NDArray[np.int64]:
        return self.columns.offset

    def take(self, rows: NDArray[Any] | slice) -> DecodedRecords:
        """A selection of the records, by index or mask, over the same bytes."""
        columns = RecordColumns(*(np.ascontiguousarray(column[rows]) for column in self.columns.arrays))
        return DecodedRecords(self.data, columns, self.batch_row[rows], self.batches)

    def with_key(self, key: bytes, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows among these whose record has the key. No Python code runs per record."""
        rows = rows[self.columns.key_length[rows] == len(key)]
        starts = self.columns.key_position[rows]
        # Keys of one topic often start with the same bytes: the last bytes rule out most candidates.
        for index in reversed(range(len(key))):
            if len(rows) <= _FEW_CANDIDATES:
                break
            same = self.data[starts + index] == key[index]
            rows, starts = rows[same], starts[same]
        else:
            return rows
        equal = [self.data[start : start + len(key)].tobytes() == key for start in starts]
        matching: NDArray[np.intp] = rows[np.array(equal, bool)]
        return matching

    def to_arrow(
        self, *, topic: str | None = None, partition: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """The records as an Arrow record batch, or only the named columns of it, in the schema's order."""
        # Not at the top: loading pyarrow takes longer than reading many files, and not every reader uses Arrow.
        # That module imports this one: a cycle, so that records have the method.
        with arrow_needed():
            from duralog.columnar.arrow_records import to_record_batch

        return to_record_batch(self, topic=topic, partition=partition, columns=columns)


@dataclass(frozen=True, slots=True)
class ArrowBinary:
    """The keys or the values of some records, in the layout of an Arrow array."""

    offsets: NDArray[np.int32]
    validity: NDArray[np.uint8]
    """A bit for each record, 0 for a null."""
    content: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GatheredRecords:
    """A chunk of records, those of the batches in `rows`, that were decoded for Arrow and nothing else."""

    data: NDArray[np.uint8]
    """The bytes that `headers_position` refers to."""
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    headers_position: NDArray[np.int64]
    header_offsets: NDArray[np.int32]
    keys: ArrowBinary | None
    values: ArrowBinary | None
    """None if they are not wanted. Headers that are not wanted have empty arrays."""
    rows: NDArray[np.intp]
    batches: NDArray[Any]

    def __len__(self) -> int:
        return len(self.offset)

    def to_arrow(
        self, *, topic: str | None = None, partition: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """As `DecodedRecords.to_arrow`."""
        with arrow_needed():
            from duralog.columnar.arrow_records import to_record_batch

        return to_record_batch(self, topic=topic, partition=partition, columns=columns)


Chunk = DecodedRecords | GatheredRecords


def places_between(offsets: NDArray[np.int64], start_offset: int, end_offset: int) -> slice | NDArray[np.intp]:
    """The rows with offsets from `start_offset` up to, not including, `end_offset`: a slice if they are contiguous, as
    for rising offsets, so that nothing is copied.
    """
    inside = (offsets >= start_offset) & (offsets < end_offset)
    count = int(np.count_nonzero(inside))
    first = int(inside.argmax()) if count else 0
    if inside[first : first + count].all():
        return slice(first, first + count)
    return np.flatnonzero(inside)
