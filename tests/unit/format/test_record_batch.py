from __future__ import annotations

import struct
from typing import Any

import pytest

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import control_records, record_batch
from duralog.format.batch import Batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from duralog.format.varint import encode_varint

K1 = Record(key=b"k1", value=b"v1", timestamp_ms=1000, headers=[("h", b"x")])
K2 = Record(key=b"k2", value=None, timestamp_ms=1001)
COMMIT = control_records.encode(
    control_records.EndTransactionMarker(type=control_records.ControlType.COMMIT, coordinator_epoch=9)
)

# Written by Kafka 4.3.1's own classes.
TWO_RECORDS = (
    "00000000000000050000004900000000029b8bbd7400000000000100000000000003e800000000000003e9ffffffffffffffffffffffffff"
    "ff000000021c000000046b31047631020268027810000202046b320100"
)
COMMIT_MARKER = (
    "000000000000000a000000420000000202cb7629b70030000000000000000000001388000000000000138800000000000000070003ffffff"
    "ff000000012000000008000000010c00000000000900"
)
COMPACTED = (
    "00000000000000050000003c00000000021450b8e500400000000200000000000dbba000000000000003e9ffffffffffffffffffffffffff"
    "ff000000011400edde6d02046b320100"
)
EMPTY = (
    "000000000000000500000031000000000226298135000000000002ffffffffffffffff00000000000003e900000000000000070003000000"
    "0400000000"
)


def decode(data: bytes) -> tuple[Batch, list[Record]]:
    batch = record_batch.decode_header(data, 0)
    return batch, record_batch.decode_records(data, batch)


def batch_of(body: bytes, *, count: int, codec: int = 0) -> bytes:
    """A batch with a right checksum around any bytes, base offset 10 and base timestamp 1000."""
    header = BATCH_V2.pack(10, 49 + len(body), 0, 2, 0, codec, 5, 1000, 2000, -1, -1, -1, count)
    whole = bytearray(header + body)
    struct.pack_into(">I", whole, BATCH_V2.at.crc, crc32c(whole[BATCH_V2.at.attributes :]))
    return bytes(whole)


def record_of(
    attributes: bytes = b"\x00",
    timestamp: bytes = b"\x00",
    offset: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    rest: bytes = b"",
) -> bytes:
    body = attributes + timestamp + offset + key + value + headers + rest
    return encode_varint(len(body)) + body


def refusal_of(data: bytes, **options: Any) -> CorruptRecord:
    batch = record_batch.decode_header(data, 0)
    assert batch.crc_ok
    with pytest.raises(CorruptRecord) as refusal:
        record_batch.decode_records(data, batch, **options)
    return refusal.value


def test_kafkas_two_records() -> None:
    data = bytes.fromhex(TWO_RECORDS)
    assert record_batch.encode([K1, K2], base_offset=5, leader_epoch=0) == data
    batch, records = decode(data)
    assert batch == Batch(
        position=0,
        size_bytes=len(data),
        magic=2,
        attributes=0,
        base_offset=5,
        last_offset=6,
        crc=0x9B8BBD74,
        crc_ok=True,
        base_timestamp_ms=1000,
        max_timestamp_ms=1001,
        record_count=2,
        leader_epoch=0,
    )
    assert records == [
        Record(key=b"k1", value=b"v1", timestamp_ms=1000, headers=(("h", b"x"),), offset=5),
        Record(key=b"k2", value=None, timestamp_ms=1001, headers=(), offset=6),
    ]


def test_kafkas_commit_marker() -> None:
    data = bytes.fromhex(COMMIT_MARKER)
    key, value = COMMIT
    marker = record_batch.encode(
        [Record(key=key, value=value, timestamp_ms=5000)],
        base_offset=10,
        leader_epoch=2,
        producer_id=7,
        producer_epoch=3,
        is_transactional=True,
        is_control=True,
    )
    assert marker == data
    assert len(marker) == 78
    batch, [record] = decode(data)
    assert (batch.is_control, batch.is_transactional, batch.producer_id, batch.producer_epoch) == (True, True, 7, 3)
    assert (record.offset, record.timestamp_ms, record.key, record.value) == (10, 5000, key, value)


def test_kafkas_compacted_batch_with_a_delete_horizon() -> None:
    data = bytes.fromhex(COMPACTED)
    kept = Record(key=b"k2", value=None, timestamp_ms=1001, offset=6)
    assert record_batch.encode([kept], base_offset=5, last_offset=7, leader_epoch=0, delete_horizon_ms=900_000) == data
    batch, [record] = decode(data)
    assert (batch.base_offset, batch.last_offset, batch.delete_horizon_ms) == (5, 7, 900_000)
    assert (record.offset, record.timestamp_ms) == (6, 1001)


def test_kafkas_empty_batch() -> None:
    data = bytes.fromhex(EMPTY)
    written = record_batch.encode(
        [],
        base_offset=5,
        last_offset=7,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=3,
        base_sequence=4,
        max_timestamp_ms=1001,
    )
    assert written == data
    batch, records = decode(data)
    assert records == []
    assert (batch.record_count, batch.last_offset, batch.last_sequence, batch.max_timestamp_ms) == (0, 7, 6, 1001)


@pytest.mark.parametrize("codec", list(Codec))
def test_codecs(codec: Codec) -> None:
    records = [Record(key=b"%d" % n, value=b"value " * n, timestamp_ms=5 + n) for n in range(100)]
    data = record_batch.encode(records, base_offset=7, codec=codec)
    batch, found = decode(data)
    assert batch.codec_id == codec
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in found] == [
        (7 + n, r.key, r.value, r.timestamp_ms) for n, r in enumerate(records)
    ]


def test_a_batch_in_the_middle_of_a_buffer() -> None:
    data = b"before" + bytes.fromhex(TWO_RECORDS) + b"after"
    for buffer in (data, bytearray(data), memoryview(data)):
        batch = record_batch.decode_header(buffer, 6)
        assert batch.position == 6
        assert batch.crc_ok
        assert [record.key for record in record_batch.decode_records(buffer, batch)] == [b"k1", b"k2"]


def test_log_append_time_hides_the_records_own() -> None:
    data = record_batch.encode([K1, K2], timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=77_000)
    batch, records = decode(data)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (1000, 77_000)
    assert {record.timestamp_ms for record in records} == {77_000}
    assert {record.timestamp_type for record in records} == {TimestampType.LOG_APPEND_TIME}


def test_offsets_of_the_records_count_and_gaps_stay() -> None:
    data = record_batch.encode([Record(offset=12), Record(), Record(offset=20)], base_offset=10)
    batch, records = decode(data)
    assert [record.offset for record in records] == [12, 13, 20]
    assert (batch.base_offset, batch.last_offset) == (10, 20)


def test_sums_wrap_like_javas() -> None:
    data = bytearray(record_batch.encode([Record(timestamp_ms=2**63 - 1), Record(timestamp_ms=-1)]))
    assert [record.timestamp_ms for record in decode(bytes(data))[1]] == [2**63 - 1, -1]
    struct.pack_into(">q", data, BATCH_V2.at.base_offset, 2**63 - 1)
    batch, records = decode(bytes(data))
    assert [record.offset for record in records] == [2**63 - 1, -(2**63)]
    assert batch.last_offset == -(2**63)


def test_null_empty_and_large_fields() -> None:
    records = [
        Record(),
        Record(key=b"", value=b""),
        Record(key=bytes(100_000), value=bytes(70), headers=[("", None), ("é中", b""), ("k", bytes(300))]),
    ]
    _, found = decode(record_batch.encode(records))
    assert [(r.key, r.value, list(r.headers)) for r in found] == [(r.key, r.value, list(r.headers)) for r in records]


def test_a_wrong_checksum_is_a_verdict() -> None:
    data = bytearray(bytes.fromhex(TWO_RECORDS))
    data[-3] ^= 0x01
    batch, records = decode(bytes(data))
    assert not batch.crc_ok
    assert len(records) == 2


@pytest.mark.parametrize("field", [BATCH_V2.at.base_offset, BATCH_V2.at.leader_epoch])
def test_what_the_broker_assigns_is_outside_the_checksum(field: int) -> None:
    data = bytearray(bytes.fromhex(TWO_RECORDS))
    data[field + 3] ^= 0x01
    assert record_batch.decode_header(bytes(data), 0).crc_ok


@pytest.mark.parametrize(
    ("body", "count", "fault", "position"),
    [
        (record_of(), -1, Fault.RECORD_COUNT, 0),
        (record_of(), 2, Fault.RECORD_COUNT, 0),
        (b"", 1, Fault.RECORD_COUNT, 0),
        (record_of(), 2**31 - 1, Fault.RECORD_COUNT, 0),
        (record_of() * 2, 1, Fault.TRAILING_BYTES, 68),
        (record_of(), 0, Fault.TRAILING_BYTES, 61),
        (record_of() + b"\x80" * 7, 2, Fault.VARINT, 68),
        (record_of() + record_of(key=b"\x04ab"), 3, Fault.RECORD_COUNT, 0),
        (record_of(key=b"\x0eabcdefg") + record_of(), 3, Fault.VARINT, 82),
        (b"\x01" + bytes(6), 1, Fault.RECORD_LENGTH, 61),
        (b"\x0e" + bytes(6), 1, Fault.RECORD_LENGTH, 61),
        (b"\xfe\xff\xff\xff\x0f" + bytes(6), 1, Fault.RECORD_LENGTH, 61),
        (record_of() + b"\x00" + bytes(6), 2, Fault.FIELD_LENGTH, 68),
        (record_of(timestamp=b"\x80" * 10 + b"\x00"), 1, Fault.VARINT, 61),
        (record_of(offset=b"\x80" * 5 + b"\x00"), 1, Fault.VARINT, 61),
        (b"\x02\x00" + bytes(6), 1, Fault.VARINT, 61),
        (record_of(key=b"\x08"), 1, Fault.FIELD_LENGTH, 61),
        (record_of(value=b"\x0a"), 1, Fault.FIELD_LENGTH, 61),
        (record_of(headers=b"\x01"), 1, Fault.HEADER_COUNT, 61),
        (record_of(headers=b"\x02"), 1, Fault.HEADER_COUNT, 61),
        (record_of(headers=b"\xfe\xff\xff\xff\x0f"), 1, Fault.HEADER_COUNT, 61),
        (record_of(headers=b"\x02\x01\x01"), 1, Fault.HEADER_KEY, 61),
        (record_of(headers=b"\x02\x08\x01"), 1, Fault.FIELD_LENGTH, 61),
        (record_of(headers=b"\x02\x00\x08"), 1, Fault.FIELD_LENGTH, 61),
        (record_of(headers=b"\x02\x00"), 1, Fault.VARINT, 61),
        (record_of(rest=b"x"), 1, Fault.RECORD_NOT_CONSUMED, 61),
    ],
)
def test_what_cannot_be_is_refused_in_place(body: bytes, count: int, fault: Fault, position: int) -> None:
    refusal = refusal_of(batch_of(body, count=count))
    assert (refusal.fault, refusal.position) == (fault, position)
    # The same bytes in a compressed batch: the same fault, told of the batch.
    packed = refusal_of(batch_of(compress(Codec.LZ4, body), count=count, codec=Codec.LZ4))
    assert (packed.fault, packed.position) == (fault, 0)
    if fault is not Fault.RECORD_COUNT:
        assert f"at byte {position - 61} of the decompressed records" in str(packed)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (record_of(), Record(timestamp_ms=1000, offset=10)),
        (record_of(attributes=b"\xff"), Record(timestamp_ms=1000, offset=10)),
        (record_of(key=b"\x03", value=b"\x05"), Record(timestamp_ms=1000, offset=10)),
        (record_of(offset=b"\x01", timestamp=b"\x01"), Record(timestamp_ms=999, offset=9)),
        (record_of(offset=b"\x84\x80\x80\x80\x00"), Record(timestamp_ms=1000, offset=12)),
        (record_of(headers=b"\x02\x02h\x03"), Record(timestamp_ms=1000, offset=10, headers=(("h", None),))),
        (record_of(headers=b"\x02\x04\xffh\x00"), Record(timestamp_ms=1000, offset=10, headers=(("\ufffdh", b""),))),
    ],
)
def test_odd_records_that_kafka_reads(body: bytes, expected: Record) -> None:
    assert decode(batch_of(body, count=1))[1] == [expected]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_come_before_all_else(codec: int) -> None:
    refusal = refusal_of(batch_of(b"", count=-1, codec=codec))
    assert (refusal.fault, refusal.position, refusal.found) == (Fault.UNKNOWN_CODEC, 0, codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_does_not_unpack_is_reported(codec: Codec) -> None:
    refusal = refusal_of(batch_of(b"not packed at all", count=-1, codec=codec))
    assert (refusal.fault, refusal.position) == (Fault.DECOMPRESSION, 0)
    assert codec.label in str(refusal).lower()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_the_ceiling_is_the_callers(codec: Codec) -> None:
    data = record_batch.encode([Record(value=bytes(10_000))], codec=codec)
    refusal = refusal_of(data, max_decompressed_bytes=10_000)
    assert (refusal.fault, refusal.position) == (Fault.TOO_LARGE, 0)


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([Record(headers=[(None, b"x")])], {}, "header"),  # type: ignore[list-item]
        ([Record(headers=[("\ud800", b"x")])], {}, "header"),
        ([Record(timestamp_ms=-2)], {}, "timestamp"),
        ([Record(timestamp_ms=2**63)], {}, "timestamp"),
        ([Record()], {"base_offset": -1}, "offsets -1 to -1"),
        ([Record(offset=4)], {"base_offset": 5}, "offset 4"),
        ([Record(offset=7), Record(offset=7)], {}, "offset 7 does not follow 7"),
        ([Record(offset=2**31)], {}, str(2**31)),
        ([Record(), Record()], {"base_offset": 2**63 - 1}, "offsets"),
        ([Record()], {"last_offset": 2**31}, "out of range"),
        ([Record(), Record()], {"last_offset": 0}, "last offset 0"),
        ([], {}, "last offset"),
        ([], {"base_offset": 5, "last_offset": 4}, "last offset 4"),
        ([Record()], {"timestamp_type": TimestampType.NONE}, "timestamp type"),
        ([Record()], {"timestamp_type": TimestampType.LOG_APPEND_TIME}, "append_time_ms"),
        ([Record()], {"producer_id": 2**63}, "out of range"),
        ([Record()], {"producer_epoch": 2**15}, "out of range"),
        ([Record()], {"base_sequence": 2**31}, "out of range"),
        ([Record()], {"leader_epoch": 2**31}, "out of range"),
        ([Record()], {"codec": Codec.SNAPPY, "level": 3}, "no levels"),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(
    records: list[Record], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        record_batch.encode(records, **options)


class _Huge(bytes):
    """Claims to be of 2 GiB without taking them."""

    def __len__(self) -> int:
        return 2**31


def test_a_record_too_large_for_its_length_is_not_written() -> None:
    with pytest.raises(InvalidRecord, match=str(2**31)):
        record_batch.encode([Record(value=_Huge())])
