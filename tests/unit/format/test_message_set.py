from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import message_set
from duralog.format.batch import Batch
from duralog.format.compression import Codec, compress
from duralog.format.record import Record, TimestampType

TWO = [Record(key=b"k1", value=b"v1", timestamp_ms=1000), Record(key=b"k2", value=None, timestamp_ms=1001)]
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

# Written by Kafka 4.3.1's own classes: the same two records at offsets 5 and 6.
PLAIN_V0 = (
    "00000000000000050000001257e7496e0000000000026b310000000276310000000000000006000000108b23e3da0000000000026b32ffff"
    "ffff"
)
LZ4_V0 = (
    "000000000000000600000050fd4547600003ffffffff0000004204224d1860401a330000001200010091050000001257e7496e0f0080026b"
    "31000000027606000002009006000000108b23e3da0d008000026b32ffffffff00000000"
)
PLAIN_V1 = (
    "00000000000000050000001ab1a6ec76010000000000000003e8000000026b31000000027631000000000000000600000018b1a2caac0100"
    "00000000000003e9000000026b32ffffffff"
)
LZ4_V1 = (
    "00000000000000060000005fd4911eb6010300000000000003e9ffffffff0000004904224d186040823a00000016000100631ab1a6ec7601"
    "10008003e8000000026b31060010760600000200001d005018b1a2caac0900000200c003e9000000026b32ffffffff00000000"
)


def message(
    magic: int,
    offset: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    attributes: int = 0,
    timestamp_ms: int = 1000,
    rest: bytes = b"",
    crc_error: int = 0,
) -> bytes:
    """Any message, built without the code under test."""
    body = struct.pack(">bb", magic, attributes)
    if magic > 0:
        body += struct.pack(">q", timestamp_ms)
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    body += rest
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body) ^ crc_error) + body


def wrapper(magic: int, offset: int, inner: bytes, *, codec: Codec = Codec.GZIP, **options: Any) -> bytes:
    attributes = options.pop("attributes", 0) | codec
    return message(magic, offset, None, compress(codec, inner, magic=magic), attributes=attributes, **options)


def three(magic: int) -> bytes:
    """Offsets 50 to 52, absolute in v0, relative in v1."""
    first = 50 if magic == 0 else 0
    return b"".join(message(magic, first + n, b"k%d" % n, b"v%d" % n, timestamp_ms=1000 + n) for n in range(3))


def decode(data: bytes) -> tuple[Batch, list[Record]]:
    batch = message_set.decode_header(data, 0)
    assert batch.size_bytes == len(data)
    return batch, message_set.decode_records(data, batch)


def refusal_of(data: bytes, **options: Any) -> CorruptRecord:
    batch = message_set.decode_header(data, 0)
    with pytest.raises(CorruptRecord) as refusal:
        message_set.decode_records(data, batch, **options)
    return refusal.value


@pytest.mark.parametrize(
    ("magic", "codec", "data"),
    [(0, Codec.NONE, PLAIN_V0), (0, Codec.LZ4, LZ4_V0), (1, Codec.NONE, PLAIN_V1), (1, Codec.LZ4, LZ4_V1)],
)
def test_kafkas_bytes_are_written(magic: int, codec: Codec, data: str) -> None:
    assert message_set.encode(TWO, magic=magic, base_offset=5, codec=codec).hex() == data


@pytest.mark.parametrize(("magic", "data"), [(0, LZ4_V0), (1, LZ4_V1)])
def test_kafkas_wrappers_are_read(magic: int, data: str) -> None:
    batch, records = decode(bytes.fromhex(data))
    assert (batch.magic, batch.base_offset, batch.last_offset, batch.record_count) == (magic, -1, 6, -1)
    assert batch.crc_ok
    assert batch.max_timestamp_ms == (1001 if magic else -1)
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in records] == [
        (5, b"k1", b"v1", 1000 if magic else -1),
        (6, b"k2", None, 1001 if magic else -1),
    ]
    expected_type = TimestampType.CREATE_TIME if magic else TimestampType.NONE
    assert {batch.timestamp_type, *(record.timestamp_type for record in records)} == {expected_type}


@pytest.mark.parametrize(("magic", "size", "data"), [(0, 30, PLAIN_V0), (1, 38, PLAIN_V1)])
def test_kafkas_plain_messages_are_read(magic: int, size: int, data: str) -> None:
    buffer = b"before" + bytes.fromhex(data)
    first = message_set.decode_header(buffer, 6)
    assert first == Batch(
        position=6,
        size_bytes=size,
        magic=magic,
        attributes=0,
        base_offset=5,
        last_offset=5,
        crc=first.crc,
        crc_ok=True,
        base_timestamp_ms=1000 if magic else -1,
        max_timestamp_ms=1000 if magic else -1,
        record_count=1,
    )
    second = message_set.decode_header(buffer, 6 + size)
    [record] = message_set.decode_records(buffer, second)
    assert (record.offset, record.key, record.value) == (6, b"k2", None)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_wrappers_of_all_codecs(magic: int, codec: Codec) -> None:
    _, records = decode(wrapper(magic, 52, three(magic), codec=codec, timestamp_ms=1002))
    assert [(record.offset, record.key, record.value) for record in records] == [
        (50, b"k0", b"v0"),
        (51, b"k1", b"v1"),
        (52, b"k2", b"v2"),
    ]
    assert [record.timestamp_ms for record in records] == ([1000, 1001, 1002] if magic else [-1, -1, -1])


def test_gaps_inside_a_v1_wrapper() -> None:
    inner = message(1, 0) + message(1, 3) + message(1, 7)
    assert [record.offset for record in decode(wrapper(1, 107, inner))[1]] == [100, 103, 107]


def test_a_v1_wrapper_without_an_offset_counts_from_zero() -> None:
    assert [record.offset for record in decode(wrapper(1, 0, three(1)))[1]] == [0, 1, 2]


def test_a_v0_wrappers_own_offset_does_not_matter() -> None:
    assert [record.offset for record in decode(wrapper(0, 1, three(0)))[1]] == [50, 51, 52]


def test_log_append_time_of_a_wrapper_is_that_of_all() -> None:
    batch, records = decode(wrapper(1, 52, three(1), attributes=8, timestamp_ms=7777))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {(r.timestamp_ms, r.timestamp_type) for r in records} == {(7777, TimestampType.LOG_APPEND_TIME)}


def test_an_inner_messages_timestamp_type_does_not_matter() -> None:
    [record] = decode(wrapper(1, 9, message(1, 0, attributes=8, timestamp_ms=5), timestamp_ms=6))[1]
    assert (record.timestamp_ms, record.timestamp_type) == (5, TimestampType.CREATE_TIME)


def test_log_append_time_of_a_plain_message() -> None:
    [record] = decode(message(1, 5, attributes=8, timestamp_ms=7777))[1]
    assert (record.timestamp_ms, record.timestamp_type) == (7777, TimestampType.LOG_APPEND_TIME)
    [record] = decode(message(0, 5, attributes=8))[1]
    assert (record.timestamp_ms, record.timestamp_type) == (-1, TimestampType.NONE)


def test_a_wrapper_may_have_a_key() -> None:
    data = message(1, 52, b"key", compress(Codec.GZIP, three(1)), attributes=Codec.GZIP)
    assert [record.offset for record in decode(data)[1]] == [50, 51, 52]


def test_any_negative_length_is_null() -> None:
    data = bytearray(message(1, 5, None, None))
    data[-8:] = struct.pack(">ii", -2, -(2**31))
    [record] = decode(bytes(data))[1]
    assert (record.key, record.value) == (None, None)


@pytest.mark.parametrize("written_for", [0, 1])
def test_the_lz4_header_checksum_is_checked_from_v1_on(written_for: int) -> None:
    for magic in (0, 1):
        data = message(magic, 52, None, compress(Codec.LZ4, three(magic), magic=written_for), attributes=Codec.LZ4)
        if magic == 1 and written_for == 0:
            assert refusal_of(data).fault is Fault.DECOMPRESSION
        else:
            assert len(decode(data)[1]) == 3


def test_a_wrong_checksum_is_a_verdict() -> None:
    batch, records = decode(message(1, 5, crc_error=1))
    assert not batch.crc_ok
    assert len(records) == 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("key_length", "value_length", "rest", "fault"),
    [
        (9, 0, b"", Fault.FIELD_LENGTH),
        (2**31 - 1, 0, b"", Fault.FIELD_LENGTH),
        (4, 0, b"", Fault.FIELD_LENGTH),
        (2, 0, b"", Fault.FIELD_LENGTH),
        (-1, 1, b"", Fault.FIELD_LENGTH),
        (-1, 2**31 - 1, b"abc", Fault.FIELD_LENGTH),
        (-1, -1, b"x", Fault.RECORD_NOT_CONSUMED),
        (-1, 1, b"ab", Fault.RECORD_NOT_CONSUMED),
    ],
)
def test_lengths_that_cannot_be(magic: int, key_length: int, value_length: int, rest: bytes, fault: Fault) -> None:
    good = message(magic, 5, None, None)
    data = b"".join((good[:-8], struct.pack(">ii", key_length, value_length), rest))
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    refusal = refusal_of(data)
    assert (refusal.fault, refusal.position) == (fault, 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_codecs_that_the_old_formats_do_not_have(magic: int, codec: int) -> None:
    refusal = refusal_of(message(magic, 5, attributes=codec))
    assert (refusal.fault, refusal.position, refusal.found) == (Fault.UNKNOWN_CODEC, 0, codec)


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_that_cannot_be(magic: int) -> None:
    good = message(magic, 0)
    other = 1 - magic
    v2_batch = struct.pack(">qiib", 0, 60, 0, 2) + bytes(55)
    cases = [
        (message(magic, 5, None, None, attributes=1), Fault.FIELD_VALUE, ""),
        (message(magic, 5, None, b"", attributes=1), Fault.DECOMPRESSION, ""),
        (message(magic, 5, None, b"not gzip", attributes=1), Fault.DECOMPRESSION, ""),
        (wrapper(magic, 5, b""), Fault.RECORD_COUNT, ""),
        (wrapper(magic, 5, good + b"12345"), Fault.RECORD_LENGTH, f"byte {len(good)} "),
        (wrapper(magic, 5, good + good[:-1]), Fault.RECORD_LENGTH, f"byte {len(good)} "),
        (wrapper(magic, 5, good[:-1]), Fault.RECORD_LENGTH, "byte 0 "),
        (wrapper(magic, 5, good + struct.pack(">qi", 1, 13) + bytes(13)), Fault.BATCH_LENGTH, f"byte {len(good)} "),
        (wrapper(magic, 5, good + message(3, 1)), Fault.UNKNOWN_MAGIC, f"byte {len(good)} "),
        (wrapper(magic, 5, good + message(other, 1)), Fault.INNER_MAGIC, f"byte {len(good)} "),
        (wrapper(magic, 5, good + v2_batch), Fault.INNER_MAGIC, f"byte {len(good)} "),
        (wrapper(magic, 5, good + wrapper(magic, 1, good)), Fault.NESTED_COMPRESSION, f"byte {len(good)} "),
        (wrapper(magic, 5, good + message(magic, 1, crc_error=1)), Fault.CRC_MISMATCH, f"byte {len(good)} "),
        (wrapper(magic, 5, good + message(magic, 1, rest=b"x")), Fault.RECORD_NOT_CONSUMED, f"byte {len(good)} "),
    ]
    for data, fault, place in cases:
        refusal = refusal_of(data)
        assert (refusal.fault, refusal.position) == (fault, 0)
        assert place in refusal.reason


def test_a_v1_wrapper_with_a_smaller_offset_than_inside() -> None:
    refusal = refusal_of(wrapper(1, 1, three(1)))
    assert (refusal.fault, refusal.position, refusal.found) == (Fault.INNER_OFFSET, 0, 1)


def test_inner_offsets_wrap_like_javas() -> None:
    data = wrapper(1, 2**63 - 1, message(1, 2**63 - 1) + message(1, -1))
    assert [record.offset for record in decode(data)[1]] == [-1, 2**63 - 1]


@pytest.mark.parametrize("codec", CODECS)
def test_the_ceiling_is_the_callers(codec: Codec) -> None:
    data = wrapper(1, 5, message(1, 0, value=bytes(10_000)), codec=codec)
    refusal = refusal_of(data, max_decompressed_bytes=10_000)
    assert (refusal.fault, refusal.position) == (Fault.TOO_LARGE, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_written(codec: Codec) -> None:
    data = message_set.encode(
        TWO, magic=1, base_offset=5, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=9999
    )
    batch, records = decode(data)
    assert (batch.max_timestamp_ms, batch.timestamp_type) == (9999, TimestampType.LOG_APPEND_TIME)
    assert [(record.offset, record.timestamp_ms) for record in records] == [(5, 9999), (6, 9999)]


@pytest.mark.parametrize("codec", CODECS)
def test_gaps_are_written(codec: Codec) -> None:
    records = [Record(offset=10), Record(offset=13), Record()]
    for magic in (0, 1):
        data = message_set.encode(records, magic=magic, base_offset=10, codec=codec)
        batch, found = decode(data)
        assert batch.last_offset == 14
        assert [record.offset for record in found] == [10, 13, 14]


def test_v0_leaves_timestamps_out() -> None:
    [record] = decode(message_set.encode([Record(timestamp_ms=-77)], magic=0))[1]
    assert record.timestamp_ms == -1


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([], {}, "needs a record"),
        ([Record()], {"magic": 2}, "not 2"),
        ([Record()], {"base_offset": -1}, "negative"),
        ([Record()], {"codec": Codec.ZSTD}, "no zstd"),
        ([Record(headers=[("h", b"x")])], {}, "no headers"),
        ([Record(timestamp_ms=-2)], {}, "timestamp -2"),
        ([Record(timestamp_ms=2**63)], {}, "timestamp"),
        ([Record(offset=3), Record(offset=3)], {}, "offset 3 does not follow 3"),
        ([Record(), Record()], {"base_offset": 2**63 - 1}, "offset"),
        ([Record()], {"timestamp_type": TimestampType.NONE}, "timestamp type"),
        ([Record()], {"timestamp_type": TimestampType.LOG_APPEND_TIME}, "append_time_ms"),
        ([Record()], {"codec": Codec.SNAPPY, "level": 3}, "no levels"),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(
    records: list[Record], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        message_set.encode(records, **{"magic": 1, **options})


class _Huge(bytes):
    """Claims to be of 2 GiB without taking them."""

    def __len__(self) -> int:
        return 2**31


def test_a_message_too_large_for_its_length_is_not_written() -> None:
    with pytest.raises(InvalidRecord, match="too large"):
        message_set.encode([Record(value=_Huge(b"x"))], magic=1)
