"""Compaction of hostile batches stays within its arrays: here each of them ends where memory ends."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from duralog.columnar import batch_rebuilder
from duralog.columnar.compacting import BatchVerdict, CompactedPiece, SurvivalRules, compact_piece
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord
from duralog.format import batches, record_batch
from duralog.format.checksum import crc32c
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import OffsetMap

NOW_MS = 1_700_000_000_000
LAST_OFFSET = 2**63 - 1


def guarded(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array followed by an inaccessible page: touching it ends the process."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, room + mmap.PAGESIZE), np.uint8)
    no_access = 0
    address = ctypes.c_void_p(memory.ctypes.data + room)
    assert ctypes.CDLL(None).mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), no_access) == 0
    return memory[room - size : room].view(kind).reshape(shape)


class GuardedNumpy:
    """numpy, but for what makes new arrays."""

    empty = staticmethod(guarded)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def concatenate(self, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        joined = np.concatenate(arrays)
        copy = guarded(len(joined), joined.dtype)
        copy[:] = joined
        return copy


@pytest.fixture(autouse=True)
def _arrays_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_rebuilder, "np", GuardedNumpy())


def piece_of(data: bytes) -> Piece:
    (piece,) = read_pieces(MemorySource(data), piece_bytes=len(data))
    return piece


def compacted(piece: Piece, offset_map: OffsetMap) -> tuple[CompactedPiece, list[CorruptRecord]]:
    rules = SurvivalRules(offset_map=offset_map, round_ms=NOW_MS, delete_retention_ms=1000, keep_legacy_tombstones=True)
    refused: list[CorruptRecord] = []
    verdicts = np.full(len(piece.batches), BatchVerdict.FILTER, np.int8)
    return compact_piece(piece, verdicts, rules, on_corrupt=lambda error, _: refused.append(error)), refused


def with_checksum(batch: bytearray) -> bytes:
    batch[BATCH_V2.at.crc : BATCH_V2.at.attributes] = struct.pack(">I", crc32c(batch[BATCH_V2.at.attributes :]))
    return bytes(batch)


def test_the_keys_before_the_damage_in_a_batch_are_not_looked_for() -> None:
    batch = bytearray(record_batch.encode([Record(key=b"k", value=b"v", offset=offset) for offset in range(600)]))
    batch[-1] = 0x7E  # So many headers that there are not.
    data = with_checksum(batch)
    offset_map = OffsetMap(1 << 12)
    offset_map.reach(1000)
    left, refused = compacted(piece_of(data), offset_map)
    assert len(refused) == 1
    assert b"".join(left.buffers) == data


def test_offsets_that_begin_again_below_zero_have_no_marks() -> None:
    batch = bytearray(record_batch.encode([Record(key=b"k", value=b"v", offset=offset) for offset in range(2)]))
    batch[:8] = struct.pack(">q", LAST_OFFSET)
    piece = piece_of(bytes(batch))
    assert piece.batches["last_offset"].tolist() == [-(2**63)]
    offset_map = OffsetMap(1 << 12)
    offset_map.watch(0, 100)
    left, refused = compacted(piece, offset_map)
    assert (b"".join(left.buffers), refused) == (bytes(batch), [])


def test_records_that_all_take_the_longest_form() -> None:
    # Each tells its time with one byte, counted from the base; from the first survivor's it takes ten.
    first = Record(key=b"gone", value=b"", offset=0, timestamp_ms=0)
    far = [Record(key=b"", value=None, offset=offset, timestamp_ms=0) for offset in range(1, 300)]
    batch = bytearray(record_batch.encode([first, *far], base_offset=0))
    at = BATCH_V2.at.base_timestamp
    batch[at : at + 8] = struct.pack(">q", -(2**63) + 1)
    piece = piece_of(with_checksum(batch))
    key = np.frombuffer(b"gone", np.uint8)
    offset_map = OffsetMap(1 << 12)
    offset_map.put(digests_of(key, np.zeros(1, np.int64), np.array([4], np.int32)), np.array([500]))
    left, refused = compacted(piece, offset_map)
    assert not refused
    data = b"".join(left.buffers)
    assert len(data) > len(batch) + 9 * 290
    (found,) = batches.scan(data)
    times = {record.timestamp_ms for record in batches.decode_records(data, found)}
    assert times == {-(2**63) + 1}
