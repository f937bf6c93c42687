"""The header scan, called directly. That it agrees with the reference on any bytes: `test_kernel_twins`."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from duralog.errors import Fault
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.scan import scan_batches

RECORDS = [Record(key=b"k", value=b"v", timestamp_ms=1000), Record(value=b"w", timestamp_ms=2000)]


def scan(data: bytes, *, rows: int = 10, base_position: int = 0, check_crc: bool = True):
    table = np.zeros(rows, BATCH_DTYPE)
    count, position, fault = scan_batches(np.frombuffer(data, np.uint8), base_position, check_crc, table)
    return table[:count], position, Fault(fault)


def test_fields_of_a_batch() -> None:
    batch = record_batch.encode(
        RECORDS,
        base_offset=70,
        leader_epoch=3,
        producer_id=2**40,
        producer_epoch=5,
        base_sequence=9,
        last_offset=75,
        codec=Codec.LZ4,
        is_transactional=True,
    )
    rows, position, fault = scan(batch, base_position=1000)
    assert (position, fault) == (len(batch), Fault.PARTIAL_BATCH)
    (row,) = rows
    assert dict(zip(BATCH_DTYPE.names or (), row.tolist(), strict=True)) == {
        "position": 1000,
        "base_offset": 70,
        "last_offset": 75,
        "base_timestamp": 1000,
        "max_timestamp": 2000,
        "producer_id": 2**40,
        "size": len(batch),
        "leader_epoch": 3,
        "base_sequence": 9,
        "record_count": 2,
        "crc": struct.unpack_from(">I", batch, BATCH_V2.at.crc)[0],
        "attributes": 0x13,
        "producer_epoch": 5,
        "magic": 2,
        "crc_ok": 1,
    }


@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 2000)])
def test_a_wrapper_has_neither_its_first_offset_nor_its_count(magic: int, timestamp: int) -> None:
    rows, _, _ = scan(message_set.encode(RECORDS, magic=magic, base_offset=7, codec=Codec.GZIP))
    (row,) = rows
    assert (row["magic"], row["base_offset"], row["last_offset"], row["record_count"]) == (magic, -1, 8, -1)
    assert (row["base_timestamp"], row["max_timestamp"], row["crc_ok"]) == (timestamp, timestamp, 1)
    assert (row["producer_id"], row["producer_epoch"], row["base_sequence"], row["leader_epoch"]) == (-1, -1, -1, -1)


def test_plain_messages_are_batches_of_one() -> None:
    rows, _, _ = scan(message_set.encode(RECORDS, magic=1, base_offset=7))
    assert rows["base_offset"].tolist() == rows["last_offset"].tolist() == [7, 8]
    assert rows["record_count"].tolist() == [1, 1]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_checksum_is_a_verdict(version: int) -> None:
    if version == 2:
        batch = record_batch.encode(RECORDS)
    else:
        batch = message_set.encode(RECORDS[:1], magic=version)
    broken = bytearray(batch)
    broken[-1] ^= 1
    rows, position, fault = scan(bytes(broken) + batch)
    assert rows["crc_ok"].tolist() == [0, 1]
    assert (position, fault) == (2 * len(batch), Fault.PARTIAL_BATCH)
    unchecked, _, _ = scan(bytes(broken) + batch, check_crc=False)
    assert unchecked["crc_ok"].tolist() == [-1, -1]


def test_stops_when_the_rows_are_full() -> None:
    batch = record_batch.encode(RECORDS)
    rows, position, fault = scan(batch * 3, rows=2)
    assert (len(rows), position, fault) == (2, 2 * len(batch), Fault.NONE)
    rows, position, fault = scan(batch * 3, rows=0)
    assert (len(rows), position, fault) == (0, 0, Fault.NONE)


def prefix(length: int, magic: int, size: int) -> bytes:
    return struct.pack(">qiiB", 0, length, 0, magic).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", Fault.PARTIAL_BATCH),
        (prefix(-1, 9, 17)[:16], Fault.PARTIAL_BATCH),
        (prefix(13, 9, 100), Fault.BATCH_LENGTH),
        (prefix(-(2**31), 2, 100), Fault.BATCH_LENGTH),
        (prefix(-1, 2, 100), Fault.BATCH_LENGTH),
        (prefix(89, 9, 100), Fault.PARTIAL_BATCH),
        (prefix(88, 9, 100), Fault.UNKNOWN_MAGIC),
        (prefix(88, 255, 100), Fault.UNKNOWN_MAGIC),
        (prefix(2**31 - 1, 2, 100), Fault.PARTIAL_BATCH),
        (prefix(48, 2, 100), Fault.BATCH_LENGTH),
        (prefix(21, 1, 100), Fault.BATCH_LENGTH),
    ],
)
def test_what_stops_a_scan(data: bytes, expected: Fault) -> None:
    batch = record_batch.encode(RECORDS)
    rows, position, fault = scan(batch + data)
    assert (len(rows), position, fault) == (1, len(batch), expected)


@pytest.mark.parametrize(("magic", "length"), [(0, 14), (1, 22), (2, 49)])
def test_the_smallest_batches(magic: int, length: int) -> None:
    rows, position, fault = scan(prefix(length, magic, 12 + length))
    assert (rows["size"].tolist(), position, fault) == ([12 + length], 12 + length, Fault.PARTIAL_BATCH)


def test_a_last_offset_past_the_largest_wraps() -> None:
    batch = bytearray(record_batch.encode(RECORDS))
    struct.pack_into(">q", batch, 0, 2**63 - 1)
    rows, _, _ = scan(bytes(batch))
    assert rows["last_offset"].tolist() == [-(2**63)]
