"""The keys of a piece's records, as digests: the input of the first pass of compaction.

Records are checked as by any other reader. A corrupt batch is reported with the same error, and gives no keys at all.
The work releases the GIL, so several threads can read pieces at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch, Refusals
from duralog.columnar.runs import Rows, RunDecoder, Span
from duralog.errors import Fault
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.kernels.key_digests import Digests, digests_of
from duralog.kernels.key_walk import walk_keys


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """The records of some batches that have a key, in their order."""

    digests: Digests
    offsets: NDArray[np.int64]
    rows: Rows
    """The batches; the last one may continue in the next chunk."""
    ends: NDArray[np.int64]
    """For each of `rows`, how many of the records here lie before its end."""
    keyless: int
    """How many records have no key."""

    def __len__(self) -> int:
        return len(self.offsets)

    def row_of(self, record: int) -> int:
        """The batch that this record is in."""
        return int(self.rows[np.searchsorted(self.ends, record, side="right")])


def read_keys(
    piece: Piece,
    rows: Rows | None = None,
    *,
    first_offset: int = 0,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    on_corrupt: OnCorruptBatch | None = None,
) -> Iterator[KeyedRecords]:
    """The keys of all batches, or of these rows, in chunks. Records before `first_offset` are not even counted.

    A corrupt batch raises `CorruptRecord` after the keys before it were yielded. With `on_corrupt(error, row)` it is
    reported there and skipped.
    """
    decoder = _KeyDecoder(
        data=piece.data,
        batches=piece.batches,
        begins=piece.batches["position"] - piece.position,
        max_decompressed_bytes=max_decompressed_bytes,
        refusals=Refusals(piece.name, piece.batches, on_corrupt),
        first_offset=first_offset,
    )
    wanted = np.arange(len(piece.batches), dtype=np.intp) if rows is None else np.ascontiguousarray(rows, np.intp)
    chunk: Any
    for chunk in decoder.decode(wanted):
        yield _keys_of(chunk, first_offset) if isinstance(chunk, DecodedRecords) else chunk


@dataclass(frozen=True, slots=True)
class _KeyDecoder(RunDecoder):
    """Walks v2 batches for their keys. Batches of other formats, or too large for a chunk, are decoded to records."""

    first_offset: int

    def _decode_records(self, span: Span, *, is_packed: bool) -> Iterator[Any]:
        batch = 0
        while batch < len(span.rows):
            first = batch
            fault, batch, position, keys = self._walk(span, first)
            if batch > first:
                yield keys
            if fault != Fault.NONE:
                self._refuse_records(span, batch, Fault(fault), position, is_packed)
                batch += 1
            elif batch == first:
                yield from RunDecoder._decode_records(self, span.part(batch, batch + 1), is_packed=is_packed)
                batch += 1

    def _walk(self, span: Span, first: int) -> tuple[int, int, int, KeyedRecords]:
        room = self._room(span, first) + 1
        offsets, key_position, ends = (
            np.empty(room, np.int64),
            np.empty(room, np.int64),
            np.empty(len(span.rows), np.int64),
        )
        key_length = np.empty(room, np.int32)
        fault, batch, position, filled, keyless = walk_keys(
            *(span.data, span.begins, span.ends, self.batches, span.rows, first, self.first_offset),
            *(offsets, key_position, key_length, ends),
        )
        digests = digests_of(span.data, key_position[:filled], key_length[:filled])
        keys = KeyedRecords(digests, offsets[:filled], span.rows[first:batch], ends[first:batch], keyless)
        return fault, batch, position, keys


def _keys_of(records: DecodedRecords, first_offset: int) -> KeyedRecords:
    columns = records.columns
    is_due = columns.offset >= first_offset
    has_key = is_due & (columns.key_length >= 0)
    digests = digests_of(records.data, columns.key_position[has_key], columns.key_length[has_key])
    last_of_batch = np.flatnonzero(np.diff(records.batch_row, append=-1))
    return KeyedRecords(
        digests,
        columns.offset[has_key],
        records.batch_row[last_of_batch].astype(np.intp),
        np.cumsum(has_key, dtype=np.int64)[last_of_batch],
        int(np.count_nonzero(is_due) - len(digests)),
    )
