"""A digest of records that does not depend on how they are batched, compressed or stored: proof that none has changed.

A record's hash is the MD5 of 49 bytes: its offset and timestamp (8 bytes each, little-endian), a byte that tells
whether the key (bit 0) and the value (bit 1) are there, and the MD5 of each (of nothing, where there is none). The
digest is the sum of all records' hashes modulo 2^128.

Why it proves that two logs hold the same records: a hash covers everything of a record, its offset included, and no
two records of a log have the same offset. So the sum stands for the records in the one order that their offsets give
them: a record that is lost, doubled, moved or changed in any bit changes one term of it, and that another change makes
up for it has a chance of 2^-128. A sum can be computed in any order and in parts: each segment has its own, and a
partition's is the sum of its segments'. It guards against mistakes and failing hardware, not against an attacker who
searches for a collision.

Headers are not part of it: formats v0 and v1 have none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.kernels.key_digests import Digests, digests_of

_HASHED = np.dtype(
    [
        ("offset", "<i8"),
        ("timestamp", "<i8"),
        ("presence", "u1"),
        ("key", "<u8", (2,)),
        ("value", "<u8", (2,)),
    ]
)
assert _HASHED.itemsize == 49
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
        hashed = rows.view(np.uint8)
        positions = np.arange(0, len(hashed), _HASHED.itemsize, dtype=np.int64)
        self.records += len(rows)
        self._add_up(digests_of(hashed, positions, np.full(len(rows), _HASHED.itemsize, np.int32)))

    def include(self, other: RecordDigest) -> None:
        """Take in the records of another part of the log."""
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
