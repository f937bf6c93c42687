"""A digest of records that does not depend on how they are batched, compressed or stored: proof that none has changed.

A record's hash is the MD5 of 49 bytes: its offset and timestamp (8 bytes each, little-endian), a byte that tells
whether the key (bit 0) and the value (bit 1) are there, and the MD5 of each (of nothing, where there is none). If it
has headers, the MD5 of their bytes follows, as a v2 record has them after their count. The digest is the sum of all
records' hashes modulo 2^128.

Why it proves that two logs hold the same records: a hash covers everything of a record, its offset included, and no
two records of a log have the same offset. So the sum stands for the records in the one order that their offsets give
them: a record that is lost, doubled, moved or changed in any bit changes one term of it, and that another change makes
up for it has a chance of 2^-128. A sum can be computed in any order and in parts: each segment has its own, and a
partition's is the sum of its segments'. It guards against mistakes and failing hardware, not against an attacker who
searches for a collision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.errors import DuralogError
from duralog.kernels.gather import list_headers
from duralog.kernels.key_digests import Digests, digests_of

_HASHED = np.dtype(
    [
        ("offset", "<i8"),
        ("timestamp", "<i8"),
        ("presence", "u1"),
        ("key", "<u8", (2,)),
        ("value", "<u8", (2,)),
        ("headers", "<u8", (2,)),
    ]
)
assert _HASHED.itemsize == 65
_WITHOUT_HEADERS = 49
_HAS_KEY, _HAS_VALUE = 1, 2
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)


class RecordDigest:
    """Counts records and adds up their hashes."""

    def __init__(self) -> None:
        self.records = 0
        self.total = 0
        """Modulo 2^128."""

    def add(self, decoded: DecodedRecords) -> None:
        columns = decoded.columns
        rows = np.empty(len(columns), _HASHED)
        rows["offset"], rows["timestamp"] = columns.offset, columns.timestamp
        rows["presence"] = _HAS_KEY * (columns.key_length >= 0) + _HAS_VALUE * (columns.value_length >= 0)
        rows["key"] = _digests(decoded.data, columns.key_position, columns.key_length)
        rows["value"] = _digests(decoded.data, columns.value_position, columns.value_length)
        lengths = np.full(len(rows), _WITHOUT_HEADERS, np.int32)
        having = np.flatnonzero(columns.header_count > 0)
        if len(having):
            rows["headers"][having] = _of_headers(decoded, having)
            lengths[having] = _HASHED.itemsize
        hashed = rows.view(np.uint8)
        positions = np.arange(0, len(hashed), _HASHED.itemsize, dtype=np.int64)
        self.records += len(rows)
        self._add_up(digests_of(hashed, positions, lengths))

    def include(self, other: RecordDigest) -> None:
        """Add the records of another part of the log."""
        self.records += other.records
        self.total = (self.total + other.total) % 2**128

    def _add_up(self, hashes: Digests) -> None:
        low, high = hashes[:, 0], hashes[:, 1]
        # Halves of words, so that no sum of a chunk overflows.
        words = (low & _LOW_WORD, low >> _WORD_BITS, high & _LOW_WORD, high >> _WORD_BITS)
        added = sum(int(word.sum(dtype=np.uint64)) << 32 * place for place, word in enumerate(words))
        self.total = (self.total + added) % 2**128

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordDigest):
            return NotImplemented
        return (self.records, self.total) == (other.records, other.total)

    def __hash__(self) -> int:
        return hash((self.records, self.total))

    def __str__(self) -> str:
        return f"{self.total:032x}"


def _digests(data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]) -> Digests:
    """Of the fields; of a null, that of no bytes."""
    is_null = lengths < 0
    if is_null.any():
        positions, lengths = np.where(is_null, 0, positions), np.where(is_null, np.int32(0), lengths)
    return digests_of(data, np.ascontiguousarray(positions), np.ascontiguousarray(lengths))


def _of_headers(decoded: DecodedRecords, having: NDArray[np.intp]) -> Digests:
    """Of the records that have headers."""
    columns = decoded.columns
    positions = np.ascontiguousarray(columns.headers_position[having])
    counts = np.ascontiguousarray(columns.header_count[having])
    total = int(counts.sum())
    key_position, key_length = np.empty(total, np.int64), np.empty(total, np.int32)
    value_position, value_length = np.empty(total, np.int64), np.empty(total, np.int32)
    places = key_position, key_length, value_position, value_length
    if list_headers(decoded.data, positions, counts, *places) != total:
        raise DuralogError("the headers of records do not lie within the data that they came from")
    last = np.cumsum(counts) - 1
    ends = value_position[last] + np.maximum(value_length[last], 0)
    return digests_of(decoded.data, positions, (ends - positions).astype(np.int32))
