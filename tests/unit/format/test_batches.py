from __future__ import annotations

import struct

import pytest

from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.layout import MIN_BATCH_BYTES
from duralog.format.record import Record

RECORDS = [Record(key=b"k%d" % n, value=b"v%d" % n, timestamp_ms=100 + n) for n in range(3)]
V0 = message_set.encode(RECORDS, magic=0, base_offset=0)
V0_WRAPPER = message_set.encode(RECORDS, magic=0, base_offset=3, codec=Codec.GZIP)
V1 = message_set.encode(RECORDS, magic=1, base_offset=6)
V1_WRAPPER = message_set.encode(RECORDS, magic=1, base_offset=9, codec=Codec.LZ4)
V2 = record_batch.encode(RECORDS, base_offset=12)
V2_PACKED = record_batch.encode(RECORDS, base_offset=15, codec=Codec.ZSTD)
ALL = V0 + V0_WRAPPER + V1 + V1_WRAPPER + V2 + V2_PACKED


def entry(length: int, magic: int, size: int) -> bytes:
    """`size` bytes that claim a length and a version."""
    return (struct.pack(">qiib", 0, length, 0, magic) + bytes(size))[:size]


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_a_log_of_all_formats(make: type) -> None:
    buffer = make(ALL)
    found = list(batches.scan(buffer))
    assert [batch.magic for batch in found] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert all(batch.crc_ok for batch in found)
    assert [batch.position for batch in found[1:]] == [batch.position + batch.size_bytes for batch in found[:-1]]
    offsets = [record.offset for batch in found for record in batches.decode_records(buffer, batch)]
    assert offsets == list(range(18))


def test_a_part_of_a_buffer() -> None:
    buffer = b"before" + V2 + V1 + b"after"
    found = list(batches.scan(buffer, 6, 6 + len(V2)))
    assert [(batch.position, batch.magic) for batch in found] == [(6, 2)]
    assert [batch.magic for batch in batches.scan(buffer, 6, 6 + len(V2) + 40)] == [2, 1]


def test_every_cut_ends_silently_after_the_whole_batches() -> None:
    whole = list(batches.scan(ALL))
    ends = [batch.position + batch.size_bytes for batch in whole]
    for cut in range(len(ALL) + 1):
        found = list(batches.scan(ALL[:cut]))
        assert found == whole[: sum(end <= cut for end in ends)]


def test_a_wrong_checksum_does_not_end_a_scan() -> None:
    damaged = bytearray(V2 + V1)
    damaged[len(V2) - 1] ^= 0x40
    assert [batch.crc_ok for batch in batches.scan(damaged)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("data", "fault", "found"),
    [
        (entry(13, 2, 40), Fault.BATCH_LENGTH, 13),
        (entry(0, 0, 17), Fault.BATCH_LENGTH, 0),
        (entry(-1, 2, 100), Fault.BATCH_LENGTH, -1),
        (entry(-(2**31), 3, 100), Fault.BATCH_LENGTH, -(2**31)),
        (entry(14, 3, 26), Fault.UNKNOWN_MAGIC, 3),
        (entry(60, -1, 100), Fault.UNKNOWN_MAGIC, 255),
        (entry(21, 1, 100), Fault.BATCH_LENGTH, 21),
        (entry(48, 2, 100), Fault.BATCH_LENGTH, 48),
    ],
)
def test_what_cannot_be_raises_after_the_good_part(data: bytes, fault: Fault, found: int) -> None:
    scan = batches.scan(V2 + data)
    assert next(scan).magic == 2
    with pytest.raises(CorruptRecord) as refusal:
        next(scan)
    assert (refusal.value.fault, refusal.value.position, refusal.value.found) == (fault, len(V2), found)


@pytest.mark.parametrize(
    "tail",
    [entry(13, 2, 16), entry(14, 9, 25), entry(2**31 - 1, 9, 500), entry(49, 2, 60), b"", b"\xff" * 8],
    ids=["no magic", "unknown magic in a partial one", "huge", "a byte short", "nothing", "half a prefix"],
)
def test_partial_batches_end_silently_whatever_they_claim(tail: bytes) -> None:
    assert len(list(batches.scan(V2 + tail))) == 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_smallest_batch_of_each_format_is_scanned(magic: int) -> None:
    size = MIN_BATCH_BYTES[magic]
    [batch] = batches.scan(entry(size - 12, magic, size))
    assert (batch.magic, batch.size_bytes, batch.crc_ok) == (magic, size, False)
