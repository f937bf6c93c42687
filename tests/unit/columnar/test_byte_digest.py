"""The digest of batches byte for byte: as its definition says, independent of pieces, another one for every change."""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np
import pytest

from duralog.columnar.byte_digest import ByteDigest
from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.format import record_batch
from duralog.format.batches import scan
from duralog.format.record import Record


def batches(sizes: list[int]) -> bytes:
    return b"".join(
        record_batch.encode([Record(value=Random(size).randbytes(size), offset=offset)], base_offset=offset)
        for offset, size in enumerate(sizes)
    )


def digest_of(data: bytes, *, piece_bytes: int = 1 << 20) -> str:
    digest = ByteDigest()
    for piece in read_pieces(MemorySource(data), piece_bytes=piece_bytes, check_crc=False):
        digest.add(piece, np.arange(len(piece.batches)))
    return digest.hexdigest()


def by_definition(data: bytes) -> str:
    whole = hashlib.sha256()
    for each in scan(data):
        batch = data[each.position : each.position + each.size_bytes]
        for begin in range(0, len(batch), 4096):
            whole.update(hashlib.md5(batch[begin : begin + 4096], usedforsecurity=False).digest())
    return whole.hexdigest()


@pytest.mark.parametrize("piece_bytes", [1 << 20, 5000, 200])
def test_it_is_as_defined_and_does_not_depend_on_pieces(piece_bytes: int) -> None:
    around = [4096 - len(batches([0])) + more for more in range(-3, 4)]
    data = batches([1, 0, 5000, 9000, *around, 100_000, 7])
    assert digest_of(data, piece_bytes=piece_bytes) == by_definition(data)


def test_any_changed_byte_changes_it() -> None:
    data = batches([20, 9000])
    whole = digest_of(data)
    first = next(iter(scan(data))).size_bytes
    # Offset and leader epoch, which no checksum covers; some contents; the end. Not the length, which moves all.
    for position in (*range(8), *range(12, 16), 61, 80, first - 1, first + 5000, len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= 1
        assert digest_of(bytes(changed)) != whole, position


def test_nothing_has_a_digest() -> None:
    assert ByteDigest().hexdigest() == hashlib.sha256().hexdigest()
