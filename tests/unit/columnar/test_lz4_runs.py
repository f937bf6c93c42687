"""LZ4 frames that no Java client wrote go to the reference, and the kernel is not asked about each of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from duralog.columnar import runs
from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.format import lz4_frame, record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.lz4 import unpack_frames

COUNT = 2000


def batch(offset: int, *, has_large_blocks: bool) -> bytes:
    """One record; the frame as Kafka's writer makes it, or as one that announces blocks of 4 MiB."""
    records = [Record(key=b"k%d" % offset, value=b"v" * 40, timestamp_ms=1)]
    data = bytearray(record_batch.encode(records, base_offset=offset, codec=Codec.LZ4))
    if has_large_blocks:
        frame = BATCH_V2.size
        data[frame + 5] = 0x70
        data[frame + 6] = lz4_frame.xxh32(data[frame + 4 : frame + 6]) >> 8 & 0xFF
        data[BATCH_V2.at.crc : BATCH_V2.at.attributes] = struct.pack(">I", crc32c(data[BATCH_V2.at.attributes :]))
    return bytes(data)


@pytest.mark.parametrize(
    ("foreign", "most_calls"),
    [
        (range(COUNT), 20),
        (range(0, COUNT, 2), 20),
        (range(3, COUNT, 500), 10),
        (range(COUNT // 2, COUNT), 20),
        (range(0), 1),
    ],
    ids=["all", "every other one", "a few", "the second half", "none"],
)
def test_foreign_frames(foreign: range, most_calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return unpack_frames(*arguments)

    monkeypatch.setattr(runs, "unpack_frames", counted)
    data = b"".join(batch(number, has_large_blocks=number in foreign) for number in range(COUNT))
    (piece,) = read_pieces(MemorySource(data))
    offsets = [offset for chunk in piece.decode() for offset in chunk.columns.offset.tolist()]
    assert offsets == list(range(COUNT))
    assert calls <= most_calls
