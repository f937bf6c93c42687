"""Keys and offsets of records, to find the last record of each key.

A key is known by its digest, as in compaction, and a record by a number that holds its offset and whether it is a
tombstone. These numbers rise with the offsets, so the largest one of a key is its last record.

Memory is bounded by the chunks that pieces are decoded in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.errors import InvalidConfig
from duralog.kernels.key_digests import Digests, digests_of
from duralog.kernels.offset_map import OffsetMap
from duralog.scanning.key_identity import KeyIdentity
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import Slice

Numbers = NDArray[np.int64]

_SMALLEST_MAP_BYTES = 1024


class KeyedChunk(NamedTuple):
    digests: Digests
    marks: Numbers
    """For each key: twice the offset of its record, and one more for a tombstone."""
    records: int
    """How many records were read for it."""
    keyless: int
    """How many of these have no key."""


def marks_of(offsets: Numbers, is_tombstone: NDArray[np.bool_]) -> Numbers:
    marks: Numbers = (offsets << 1) | is_tombstone
    return marks


def live_offsets(marks: Numbers) -> Numbers:
    """The offsets of the records that are not tombstones, in order."""
    offsets: Numbers = np.sort(marks[marks & 1 == 0] >> 1)
    return offsets


OnKeyless = Callable[[Slice, DecodedRecords], None]
"""Called with the records of a slice that have no key."""


def keys_of_log(
    slices: Iterable[Slice], identity: KeyIdentity = KeyIdentity.BYTES, on_keyless: OnKeyless | None = None
) -> Iterator[KeyedChunk]:
    """The keys of the records that are visible to a reader of the slices, in the order of the log."""
    for found in slices:
        yield from read_slice_pieces(found, partial(_keys_of_piece, found, identity, on_keyless))


def _keys_of_piece(
    found: Slice,
    identity: KeyIdentity,
    on_keyless: OnKeyless | None,
    piece: Piece,
    rows: Rows | None,
    refuse: OnCorruptBatch,
) -> Iterator[KeyedChunk]:
    for decoded in piece.decode(rows, on_corrupt=refuse):
        records = within(decoded, found)
        columns = records.columns
        has_key = columns.key_length >= 0
        keyless = len(records) - int(np.count_nonzero(has_key))
        if keyless:
            columns = records.take(has_key).columns
            if on_keyless is not None:
                on_keyless(found, records.take(~has_key))
        places = identity.narrowed(records.data, columns.key_position, columns.key_length)
        digests = digests_of(records.data, *places)
        yield KeyedChunk(digests, marks_of(columns.offset, columns.value_length < 0), len(records), keyless)


def rows_of_log(slices: Iterable[Slice], wanted: Numbers, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The records with these offsets, which are in order. Batches without any of them are not decompressed."""
    for found in slices:
        yield from read_slice_pieces(found, partial(_rows_of_piece, found, wanted, columns))


def _rows_of_piece(
    found: Slice, wanted: Numbers, columns: list[str], piece: Piece, rows: Rows | None, refuse: OnCorruptBatch
) -> Iterator[pa.RecordBatch]:
    batches = piece.batches
    rows = np.arange(len(batches), dtype=np.intp) if rows is None else rows
    # Of a wrapper of old messages only the last offset is known. Its first one, -1, takes in more than it has.
    first = np.searchsorted(wanted, batches["base_offset"][rows], side="left")
    end = np.searchsorted(wanted, batches["last_offset"][rows], side="right")
    for decoded in piece.decode(rows[end > first], on_corrupt=refuse):
        records = within(decoded, found)
        chosen = is_among(records.columns.offset, wanted)
        if chosen.any():
            records = records if chosen.all() else records.take(chosen)
            yield records.to_arrow(topic=found.topic, partition=found.partition, columns=columns)


def records_of_keys(
    slices: Iterable[Slice],
    is_wanted: Callable[[Digests], NDArray[np.bool_]],
    columns: list[str],
    identity: KeyIdentity = KeyIdentity.BYTES,
) -> Iterator[pa.RecordBatch]:
    """All records of the keys with these digests, in the order of the log."""

    def of_piece(found: Slice, piece: Piece, rows: Rows | None, refuse: OnCorruptBatch) -> Iterator[pa.RecordBatch]:
        for decoded in piece.decode(rows, on_corrupt=refuse):
            records = within(decoded, found)
            records = records.take(records.columns.key_length >= 0)
            places = identity.narrowed(records.data, records.columns.key_position, records.columns.key_length)
            chosen = is_wanted(digests_of(records.data, *places))
            if chosen.any():
                yield records.take(chosen).to_arrow(topic=found.topic, partition=found.partition, columns=columns)

    for found in slices:
        yield from read_slice_pieces(found, partial(of_piece, found))


def within(decoded: DecodedRecords, found: Slice) -> DecodedRecords:
    """Only the records of the slice: its first and last batches may hold others."""
    offsets = decoded.columns.offset
    inside = (offsets >= found.start_offset) & (offsets < found.end_offset)
    return decoded if inside.all() else decoded.take(inside)


def is_among(offsets: Numbers, wanted: Numbers) -> NDArray[np.bool_]:
    """Whether each offset is one of the wanted ones, which are in order."""
    if not len(wanted):
        return np.zeros(len(offsets), np.bool_)
    places = np.searchsorted(wanted, offsets)
    found: NDArray[np.bool_] = wanted[np.minimum(places, len(wanted) - 1)] == offsets
    return found


class MapFull(Exception):
    """The keys do not fit into the map."""


def put_all(offset_map: OffsetMap, chunk: KeyedChunk) -> None:
    if offset_map.put(chunk.digests, chunk.marks) < len(chunk.marks):
        raise MapFull


def check_map_bytes(name: str, size_bytes: int) -> None:
    """Refuse a map that is too small for any keys. `name` is its name in the error."""
    if size_bytes < _SMALLEST_MAP_BYTES:
        raise InvalidConfig(f"{name}: {size_bytes} is not allowed, a map has at least {_SMALLEST_MAP_BYTES}")
