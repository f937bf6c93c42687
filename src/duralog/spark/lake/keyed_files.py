"""Keys, offsets and rows of a table's Parquet files, as `duralog.scanning.keyed_offsets` has them of a log.

Memory is bounded by the row groups of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from duralog.columnar.decoded import CHUNK_RECORDS
from duralog.columnar.schema import KEY, OFFSET
from duralog.kernels.key_digests import Digests, digests_of
from duralog.scanning.key_identity import KeyIdentity
from duralog.scanning.keyed_offsets import KeyedChunk, Numbers, is_among, marks_of
from duralog.schemas.typed_columns import CORRUPT
from duralog.spark.lake.columns import name_of
from duralog.spark.lake.targets import LakeTarget


def keys_of_file(
    target: LakeTarget, path: str, first_offset: int, identity: KeyIdentity = KeyIdentity.BYTES
) -> Iterator[KeyedChunk]:
    """The keys of a table's file. A row whose record the log no longer has is like a tombstone of the key."""
    for rows in _batches(target, path, _named(KEY, OFFSET)):
        keys, offsets = rows.column(0), _int64s(rows.column(1))
        yield KeyedChunk(digests_of_keys(keys, identity), marks_of(offsets, offsets < first_offset), len(offsets), 0)


def expired_among(marks: Numbers, first_offset: int) -> int:
    """How many of the last marks of keys are of rows whose record the log no longer has."""
    return int(np.count_nonzero((marks & 1 == 1) & (marks >> 1 < first_offset)))


def rows_of_file(target: LakeTarget, path: str, wanted: Numbers, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows with these offsets, which are in order."""
    offset = schema.get_field_index(name_of(schema, OFFSET))
    for rows in _batches(target, path, lambda _: schema.names):
        chosen = is_among(_int64s(rows.column(offset)), wanted)
        if chosen.any():
            kept = rows if chosen.all() else rows.filter(pa.array(chosen))
            yield pa.RecordBatch.from_arrays(kept.columns, schema=schema)


def count_of_file(target: LakeTarget, path: str, wanted: Numbers) -> tuple[int, int]:
    """How many rows a file has, and how many of them have one of these offsets."""
    total = found = 0
    for rows in _batches(target, path, _named(OFFSET)):
        total += rows.num_rows
        found += int(np.count_nonzero(is_among(_int64s(rows.column(0)), wanted)))
    return total, found


def corrupt_of_file(target: LakeTarget, path: str) -> int:
    """How many rows have something in `_corrupt`: by its reasons, which are small."""
    found = _batches(target, path, lambda _: [CORRUPT], [f"{CORRUPT}.reason"])
    return sum(rows.num_rows - rows.column(0).null_count for rows in found)


def columns_of_file(target: LakeTarget, path: str, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows."""
    yield from _batches(target, path, lambda _: names)


def digests_of_keys(keys: pa.Array, identity: KeyIdentity) -> Digests:
    """The digests of keys without nulls."""
    positions, lengths, data = _places(keys)
    return digests_of(data, *identity.narrowed(data, positions, lengths))


def _batches(
    target: LakeTarget, path: str, columns: Callable[[pa.Schema], list[str]], fields: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns of a file, in the order in which they are chosen from its schema; of structs only some fields."""
    with target.file_system.open_input_file(target.path(path)) as file, pq.ParquetFile(file) as parquet:
        names = columns(parquet.schema_arrow)
        for batch in parquet.iter_batches(CHUNK_RECORDS, columns=fields or names):
            yield batch.select(names)


def _named(*columns: str) -> Callable[[pa.Schema], list[str]]:
    return lambda schema: [name_of(schema, column) for column in columns]


def _int64s(column: pa.Array) -> Numbers:
    numbers: Numbers = column.to_numpy(zero_copy_only=False)
    return numbers


def _places(keys: pa.Array) -> tuple[Numbers, NDArray[np.int32], NDArray[np.uint8]]:
    """Where each key lies in the bytes of all."""
    _, offsets, content = keys.buffers()
    edges = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * 4)
    data = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    return edges[:-1].astype(np.int64), np.diff(edges), data
