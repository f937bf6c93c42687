"""The rules of an append, one by one: what is refused, for what reason, and which bytes are written for the rest."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, Fault, InvalidRecord, InvalidTimestamp, RecordTooLarge
from duralog.format import batches, control_records, message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress
from duralog.format.control_records import ControlType, EndTransactionMarker
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from duralog.storage.append.batch_admission import Stamp, TakesLong
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.producer_batch import ProducerBatch
from duralog.storage.append.validation import ValidBatches, validate

NOW = 1_700_000_000_000
HOUR = 3_600_000
NEXT_OFFSET = 1000
EPOCH = 6
CODECS = tuple(Codec)

RECORDS = [
    Record(key=b"a", value=b"x" * 50, timestamp_ms=NOW, headers=[("h", b"1")]),
    Record(key=b"b", value=None, timestamp_ms=NOW + 5),
    Record(key=b"c", value=b"y" * 50, timestamp_ms=NOW - 5),
]


def appended(
    data: Any, *, origin: AppendOrigin = AppendOrigin.CLIENT, now_ms: int = NOW, **config: Any
) -> ValidBatches:
    return validate(
        data,
        config=TopicConfig(**config),
        stamp=Stamp(NEXT_OFFSET, EPOCH, now_ms),
        origin=origin,
    )


def written(valid: ValidBatches) -> bytes:
    return b"".join(bytes(buffer) for buffer in valid.buffers)


def with_field(batch: bytes, name: str, value: int, *, seal: bool = True) -> bytes:
    """The batch with another value in one field of its header."""
    codes = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
    field = next(field for field in BATCH_V2.fields if field.name == name)
    made = bytearray(batch)
    struct.pack_into(codes[field.size], made, getattr(BATCH_V2.at, name), value)
    if seal:
        struct.pack_into(">I", made, BATCH_V2.at.crc, crc32c(made[BATCH_V2.at.attributes :]))
    return bytes(made)


def header_of(data: bytes) -> Batch:
    return record_batch.decode_header(data, 0)


def records_of(data: bytes) -> list[Record]:
    return record_batch.decode_records(data, header_of(data))


def extents_match(valid: ValidBatches) -> bool:
    """Whether a scan of the bytes finds what is said of the batches."""
    found = list(batches.scan(written(valid)))
    assert all(batch.crc_ok for batch in found)
    assert found[-1].last_offset == valid.last_offset
    return valid.extents == [
        (batch.position, batch.size_bytes, batch.last_offset, batch.max_timestamp_ms) for batch in found
    ]


# In place


@pytest.mark.parametrize("codec", CODECS)
def test_an_honest_batch_is_stamped_and_nothing_else(codec: Codec) -> None:
    batch = record_batch.encode(RECORDS, codec=codec)
    valid = appended(batch)
    data = written(valid)
    assert data[16:] == batch[16:]
    header = header_of(data)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (1000, 1002, EPOCH)
    assert header.crc_ok
    assert extents_match(valid)
    assert (valid.base_offset, valid.last_offset, valid.max_timestamp_ms) == (1000, 1002, NOW + 5)
    assert (valid.append_time_ms, valid.size_bytes, valid.producer_batches) == (-1, len(batch), [])


def test_stamps_are_written_into_the_given_buffer() -> None:
    data = bytearray(record_batch.encode(RECORDS))
    valid = appended(data)
    assert written(valid) == bytes(data)
    assert header_of(bytes(data)).base_offset == NEXT_OFFSET
    view = memoryview(bytearray(b"front" + record_batch.encode(RECORDS) + b"back"))[5:-4]
    assert written(appended(view)) == bytes(view)


def test_bytes_that_cannot_be_written_to_are_copied() -> None:
    batch = record_batch.encode(RECORDS)
    before = bytes(bytearray(batch))
    appended(batch)
    assert batch == before


def test_a_lying_maximum_is_put_right() -> None:
    for lie in (NOW + 7000, 0, -1):
        valid = appended(with_field(record_batch.encode(RECORDS), "max_timestamp", lie))
        assert header_of(written(valid)).max_timestamp_ms == NOW + 5
        assert header_of(written(valid)).crc_ok
        assert extents_match(valid)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec: Codec) -> None:
    batch = record_batch.encode(RECORDS, codec=codec)
    valid = appended(batch, message_timestamp_type="LogAppendTime", now_ms=NOW + 99)
    header = header_of(written(valid))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.base_timestamp_ms == NOW
    assert written(valid)[BATCH_V2.size :] == batch[BATCH_V2.size :]
    assert {record.timestamp_ms for record in records_of(written(valid))} == {NOW + 99}
    assert (valid.append_time_ms, valid.max_timestamp_ms) == (NOW + 99, NOW + 99)
    assert header.crc_ok
    assert extents_match(valid)


def test_rewriting_attributes_keeps_the_bits_that_have_a_meaning() -> None:
    batch = record_batch.encode(
        RECORDS, codec=Codec.LZ4, is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
    )
    odd = with_field(batch, "attributes", header_of(batch).attributes | 0x4000)
    assert header_of(written(appended(odd))).attributes == header_of(odd).attributes
    valid = appended(odd, message_timestamp_type="LogAppendTime")
    assert header_of(written(valid)).attributes == int(Codec.LZ4) | 0x18


def test_half_a_batch_at_the_end_is_ignored() -> None:
    batch = record_batch.encode(RECORDS)
    valid = appended(batch + batch[:50])
    assert valid.size_bytes == len(batch)
    assert len(valid.extents) == 1


def test_several_batches_follow_each_other() -> None:
    plain = record_batch.encode(RECORDS)
    packed = record_batch.encode(RECORDS[:2], codec=Codec.GZIP)
    valid = appended(bytearray(plain + packed + plain))
    assert [batch.base_offset for batch in batches.scan(written(valid))] == [1000, 1003, 1005]
    assert [position for position, *_ in valid.extents] == [0, len(plain), len(plain) + len(packed)]
    assert valid.last_offset == 1007
    assert valid.size_bytes == len(written(valid))
    assert extents_match(valid)
    recompressed = appended(plain + packed, compression_type="zstd")
    assert extents_match(recompressed)
    assert recompressed.size_bytes == len(written(recompressed))
    assert len(recompressed.buffers) == 2


# What is refused


@pytest.mark.parametrize("data", [b"", b"\0" * 16, record_batch.encode(RECORDS)[:-1]])
def test_no_whole_batch(data: bytes) -> None:
    for origin in AppendOrigin:
        with pytest.raises(InvalidRecord, match="no complete batch"):
            appended(data, origin=origin)


def test_a_base_offset_is_the_logs_to_give() -> None:
    batch = record_batch.encode(RECORDS, base_offset=4)
    with pytest.raises(InvalidRecord, match="base offset must be 0, not 4"):
        appended(batch)
    assert appended(batch, origin=AppendOrigin.COORDINATOR).base_offset == NEXT_OFFSET


def test_the_largest_batch() -> None:
    batch = record_batch.encode(RECORDS)
    appended(batch, max_message_bytes=len(batch))
    with pytest.raises(RecordTooLarge, match=f"{len(batch)} bytes; max.message.bytes is {len(batch) - 1}"):
        appended(batch, max_message_bytes=len(batch) - 1)


def test_a_batch_that_grows_when_it_is_rebuilt() -> None:
    records = [replace(record, value=b"z" * 5000) for record in RECORDS]
    batch = record_batch.encode(records, codec=Codec.ZSTD)
    appended(batch, max_message_bytes=1000)
    with pytest.raises(RecordTooLarge):
        appended(batch, max_message_bytes=1000, compression_type="uncompressed")


def test_a_wrong_checksum() -> None:
    batch = record_batch.encode(RECORDS)
    damaged = batch[:-1] + bytes([batch[-1] ^ 1])
    with pytest.raises(CorruptRecord, match="wrong checksum") as caught:
        appended(batch + damaged)
    assert (caught.value.fault, caught.value.position) == (Fault.CRC_MISMATCH, len(batch))


def test_bytes_that_are_no_batch() -> None:
    batch = record_batch.encode(RECORDS)
    for data, fault in (
        (batch + b"\0" * 40, Fault.BATCH_LENGTH),
        (batch + with_field(batch, "magic", 9, seal=False), Fault.UNKNOWN_MAGIC),
        (batch + with_field(batch, "magic", -1, seal=False), Fault.UNKNOWN_MAGIC),
    ):
        with pytest.raises(CorruptRecord) as caught:
            appended(data)
        assert (caught.value.fault, caught.value.position) == (fault, len(batch))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_only_read(magic: int) -> None:
    message = message_set.encode([Record(value=b"v", timestamp_ms=NOW if magic else -1)], magic=magic, base_offset=0)
    with pytest.raises(InvalidRecord, match=f"format v{magic} is only read"):
        appended(message)


@pytest.mark.parametrize(("count", "delta"), [(3, 3), (3, 1), (0, -1), (-1, -2), (3, -1), (2, 2)])
def test_counts_and_offsets_agree(count: int, delta: int) -> None:
    batch = with_field(record_batch.encode(RECORDS), "record_count", count)
    batch = with_field(batch, "last_offset_delta", delta)
    for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
        with pytest.raises(InvalidRecord, match="records and"):
            appended(batch, origin=origin)


def test_a_client_writes_no_control_batch() -> None:
    key, value = control_records.encode(EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=3))
    fields: Any = {"producer_id": 5, "producer_epoch": 1, "is_control": True, "is_transactional": True}
    batch = record_batch.encode([Record(key=key, value=value, timestamp_ms=NOW)], **fields)
    with pytest.raises(InvalidRecord, match="only the broker"):
        appended(with_field(batch, "base_sequence", 0))
    valid = appended(batch, origin=AppendOrigin.COORDINATOR, compression_type="zstd")
    assert written(valid)[16:] == batch[16:]
    (marker,) = valid.producer_batches
    assert marker.marker == EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=3)
    assert (marker.producer_id, marker.base_offset, marker.max_timestamp_ms) == (5, NEXT_OFFSET, NOW)


def test_a_producer_gives_sequence_numbers() -> None:
    batch = record_batch.encode(RECORDS, producer_id=5, producer_epoch=1)
    with pytest.raises(InvalidRecord, match="producer 5 has sequence number -1, which must not be negative"):
        appended(batch)
    assert appended(batch, origin=AppendOrigin.COORDINATOR).producer_batches[0].base_sequence == -1


def test_batches_of_producers_are_reported() -> None:
    batch = record_batch.encode(RECORDS, producer_id=5, producer_epoch=1, base_sequence=40, is_transactional=True)
    assert appended(batch).producer_batches == [ProducerBatch(5, 1, 40, 1000, 1002, NOW + 5, True)]
    plain = record_batch.encode(RECORDS)
    for data in (batch + plain, plain + batch, batch + batch):
        with pytest.raises(InvalidRecord, match="appended alone"):
            appended(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_needs_keys(codec: Codec) -> None:
    keyless = [replace(RECORDS[0], key=None), RECORDS[1], replace(RECORDS[2], key=None), *RECORDS]
    batch = record_batch.encode(keyless, codec=codec)
    appended(batch)
    for policy in ({"compact"}, {"compact", "delete"}):
        with pytest.raises(InvalidRecord, match="2 of 6 records refused: record 0: Compacted topic") as caught:
            appended(batch, cleanup_policy=frozenset(policy))
        assert [index for index, _ in caught.value.record_errors] == [0, 2]
        assert not isinstance(caught.value, InvalidTimestamp)
    appended(record_batch.encode(RECORDS, codec=codec), cleanup_policy=frozenset({"compact"}))


def test_an_empty_key_is_a_key() -> None:
    appended(record_batch.encode([Record(key=b"", timestamp_ms=NOW)]), cleanup_policy=frozenset({"compact"}))


@pytest.mark.parametrize(
    ("time", "is_good"),
    [
        (NOW + HOUR, True),
        (NOW + HOUR + 1, False),
        (NOW - 1000, True),
        (NOW - 1001, False),
        (-1, True),
        (-2, False),
        (2**63 - 1, False),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_timestamps_stay_near_the_clock(time: int, is_good: bool, codec: Codec) -> None:
    """-2 cannot be encoded, but a client can send it: as a delta."""
    plain = with_field(
        record_batch.encode([Record(timestamp_ms=NOW), Record(timestamp_ms=NOW)]), "base_timestamp", time
    )
    batch = plain if codec is Codec.NONE else packed(plain, codec)
    limits: Any = {"message_timestamp_before_max_ms": 1000}
    if is_good:
        assert header_of(written(appended(batch, **limits))).max_timestamp_ms == time
        return
    with pytest.raises(InvalidTimestamp, match=rf"Timestamp {time} of message .* within \[{NOW - 1000}, ") as caught:
        appended(batch, **limits)
    assert [index for index, _ in caught.value.record_errors] == [0, 1]
    appended(batch, message_timestamp_type="LogAppendTime", **limits)


def packed(plain: bytes, codec: Codec) -> bytes:
    """A plain batch, its records compressed as they are."""
    body = compress(codec, plain[BATCH_V2.size :])
    made = with_field(plain[: BATCH_V2.size] + body, "length", BATCH_V2.size - 12 + len(body), seal=False)
    return with_field(made, "attributes", int(codec))


@pytest.mark.parametrize(
    "batch",
    [
        record_batch.encode([Record(value=bytes(2 << 20), timestamp_ms=NOW)], codec=Codec.ZSTD),
        record_batch.encode([Record(value=b"v", timestamp_ms=NOW + 2 * HOUR)] * 501),
    ],
)
def test_a_caller_that_cannot_wait_gets_an_error_and_an_unchanged_batch(batch: bytes) -> None:
    data = bytearray(batch)
    with pytest.raises(TakesLong):
        validate(data, config=TopicConfig(), stamp=Stamp(7, 0, NOW), is_quick=True)
    assert data == batch


def test_errors_of_records_are_reported_together() -> None:
    times = [NOW, NOW + 2 * HOUR, NOW, NOW + 3 * HOUR, NOW + 4 * HOUR, NOW + 5 * HOUR]
    records = [Record(key=b"k" if time != NOW else None, timestamp_ms=time) for time in times]
    with pytest.raises(InvalidTimestamp) as caught:
        appended(record_batch.encode(records), cleanup_policy=frozenset({"compact"}))
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2, 3, 4, 5]
    assert "6 of 6 records" in str(caught.value)
    assert "record 2" in str(caught.value)
    assert "record 3" not in str(caught.value)


def test_log_append_time_is_not_a_clients_to_set() -> None:
    def batch(time: int) -> bytes:
        return record_batch.encode(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=time)

    with pytest.raises(InvalidTimestamp, match="must not set the timestamp type LogAppendTime"):
        appended(batch(NOW), message_timestamp_type="LogAppendTime")
    with pytest.raises(InvalidTimestamp, match="must not set the timestamp type LogAppendTime"):
        appended(batch(-1))
    # Kafka takes it where the time is good, and sets the type that the topic has.
    header = header_of(written(appended(batch(NOW + 3))))
    assert (header.timestamp_type, header.max_timestamp_ms) == (TimestampType.CREATE_TIME, NOW + 3)
    with pytest.raises(InvalidTimestamp, match="out of range"):
        appended(batch(NOW + 2 * HOUR))


def test_the_structure_of_records_is_checked() -> None:
    batch = record_batch.encode(RECORDS)
    second = BATCH_V2.size + len(batch[BATCH_V2.size :]) // 3
    damaged = bytearray(batch)
    damaged[second:] = b"\xff" * (len(batch) - second)
    struct.pack_into(">I", damaged, BATCH_V2.at.crc, crc32c(damaged[BATCH_V2.at.attributes :]))
    for front in (b"", batch):
        with pytest.raises(CorruptRecord) as caught:
            appended(front + bytes(damaged))
        with pytest.raises(CorruptRecord) as expected:
            records_of(bytes(damaged))
        assert caught.value.fault is expected.value.fault
        assert caught.value.reason == expected.value.reason
        assert caught.value.position == len(front) + (expected.value.position or 0)


def test_a_batch_that_does_not_unpack() -> None:
    batch = record_batch.encode(RECORDS, codec=Codec.ZSTD)
    damaged = with_field(batch[: BATCH_V2.size] + b"\0" * (len(batch) - BATCH_V2.size), "record_count", 3)
    with pytest.raises(CorruptRecord) as caught:
        appended(batch + damaged)
    assert (caught.value.fault, caught.value.position) == (Fault.DECOMPRESSION, len(batch))
    with pytest.raises(CorruptRecord) as caught:
        appended(with_field(batch, "attributes", 6))
    assert caught.value.fault is Fault.UNKNOWN_CODEC


def test_a_batch_that_unpacks_to_too_much() -> None:
    batch = record_batch.encode([Record(value=bytes(100_000), timestamp_ms=NOW)], codec=Codec.ZSTD)
    with pytest.raises(CorruptRecord) as caught:
        validate(batch, config=TopicConfig(), stamp=Stamp(0, 0, NOW), max_decompressed_bytes=99_000)
    assert caught.value.fault is Fault.TOO_LARGE


def test_offsets_end_somewhere() -> None:
    batch = record_batch.encode(RECORDS)
    last = 2**63 - 1
    assert validate(batch, config=TopicConfig(), stamp=Stamp(last - 2, 0, NOW)).last_offset == last
    with pytest.raises(InvalidRecord, match="no offsets left"):
        validate(batch, config=TopicConfig(), stamp=Stamp(last - 1, 0, NOW))


# Built anew


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", CODECS)
def test_the_topics_codec(source: Codec, target: str) -> None:
    batch = record_batch.encode(
        RECORDS, codec=source, producer_id=5, producer_epoch=2, base_sequence=9, is_transactional=True
    )
    wanted = Codec.NONE if target == "uncompressed" else Codec.named(target)
    for timestamp_type in ("CreateTime", "LogAppendTime"):
        valid = appended(bytearray(batch), compression_type=target, message_timestamp_type=timestamp_type)
        data = written(valid)
        is_append_time = timestamp_type == "LogAppendTime"
        assert data == record_batch.encode(
            RECORDS,
            base_offset=NEXT_OFFSET,
            codec=wanted,
            leader_epoch=EPOCH,
            producer_id=5,
            producer_epoch=2,
            base_sequence=9,
            is_transactional=True,
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
            append_time_ms=NOW if is_append_time else None,
        )
        assert extents_match(valid)
        assert valid.producer_batches[0].base_offset == NEXT_OFFSET


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", 1, 19)])
def test_the_topics_level(codec: str, low: int, high: int) -> None:
    records = [Record(value=bytes(range(n % 7, 200)) * 3 + bytes([n]) * n, timestamp_ms=NOW) for n in range(200)]

    def configs(level: int) -> dict[str, Any]:
        return {"compression_type": codec, f"compression_{codec}_level": level}

    sizes = [appended(record_batch.encode(records), **configs(level)).size_bytes for level in (low, high)]
    assert sizes[1] < sizes[0]


def odd_batch() -> bytes:
    """As no honest client sends it: offsets with a gap, the first timestamp not the base, attributes in a record."""
    first = bytes.fromhex("0e 05 06 02 02 61 01 00".replace(" ", ""))
    second = bytes.fromhex("0e 00 00 0a 02 62 01 00".replace(" ", ""))
    header = record_batch.encode([Record(timestamp_ms=NOW), Record(timestamp_ms=NOW)])[: BATCH_V2.size]
    made = with_field(header + first + second, "length", BATCH_V2.size - 12 + 16, seal=False)
    return with_field(made, "max_timestamp", NOW + 3)


@pytest.mark.parametrize("codec", CODECS)
def test_non_consecutive_offsets_are_reassigned(codec: Codec) -> None:
    batch = odd_batch() if codec is Codec.NONE else packed(odd_batch(), codec)
    assert [record.offset for record in records_of(batch)] == [1, 5]
    valid = appended(batch)
    data = written(valid)
    assert [(record.offset, record.key, record.timestamp_ms) for record in records_of(data)] == [
        (1000, b"a", NOW + 3),
        (1001, b"b", NOW),
    ]
    assert header_of(data).base_timestamp_ms == NOW + 3
    assert header_of(data).codec_id == codec
    assert extents_match(valid)


def test_timestamps_count_from_the_first_record() -> None:
    """In a rebuilt batch, whatever they were relative to before."""
    times = [NOW - 40, NOW + 7]
    batch = with_field(record_batch.encode([Record(timestamp_ms=time) for time in times]), "base_timestamp", NOW)
    read = [record.timestamp_ms for record in records_of(batch)]
    assert read == [NOW, NOW + 47]
    shifted = bytearray(batch)
    first_delta = BATCH_V2.size + 2
    assert shifted[first_delta] == 0
    shifted[first_delta] = 20
    honest = [Record(timestamp_ms=NOW + 10), Record(timestamp_ms=NOW + 47)]
    data = written(appended(with_field(bytes(shifted), "max_timestamp", NOW + 47), compression_type="lz4"))
    assert data == record_batch.encode(honest, base_offset=NEXT_OFFSET, leader_epoch=EPOCH, codec=Codec.LZ4)


def test_a_time_that_all_records_share_becomes_their_own() -> None:
    """Of a batch of log append time that is accepted (see above) and recompressed."""
    batch = record_batch.encode(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=NOW + 8)
    data = written(appended(batch, compression_type="gzip"))
    assert [record.timestamp_ms for record in records_of(data)] == [NOW + 8] * 3
    assert header_of(data).timestamp_type is TimestampType.CREATE_TIME


# As it is


def as_is(data: bytes, next_offset: int = 0) -> ValidBatches:
    return validate(
        data,
        config=TopicConfig(max_message_bytes=1, cleanup_policy=frozenset({"compact"}), compression_type="zstd"),
        stamp=Stamp(next_offset, EPOCH, NOW),
        origin=AppendOrigin.AS_IS,
    )


def test_copies_keep_every_byte() -> None:
    data = b"".join(
        (
            message_set.encode([Record(value=b"v", timestamp_ms=5)], magic=1, base_offset=3),
            message_set.encode(
                [Record(offset=n, value=b"v", timestamp_ms=6) for n in (4, 9)], magic=1, base_offset=4, codec=Codec.GZIP
            ),
            record_batch.encode(RECORDS, base_offset=20, leader_epoch=2, producer_id=5, producer_epoch=0),
            record_batch.encode([], base_offset=30, last_offset=33, leader_epoch=3),
        )
    )
    valid = as_is(data, 3)
    assert written(valid) == data
    assert extents_match(valid)
    assert (valid.base_offset, valid.last_offset, valid.max_timestamp_ms) == (3, 33, NOW + 5)
    assert [batch.base_offset for batch in valid.producer_batches] == [20]
    assert written(as_is(data + data[:20], 3)) == data


def test_copies_are_in_order() -> None:
    first = record_batch.encode(RECORDS, base_offset=10)
    second = record_batch.encode(RECORDS, base_offset=13)
    as_is(first + second, 10)
    for data, next_offset in ((first, 11), (second + first, 0), (first + first, 0)):
        with pytest.raises(InvalidRecord, match="begin at"):
            as_is(data, next_offset)
    with pytest.raises(InvalidRecord, match="begin at"):
        as_is(with_field(first, "last_offset_delta", -3), 0)


def test_copies_are_whole() -> None:
    batch = record_batch.encode(RECORDS)
    damaged = bytes(np.frombuffer(record_batch.encode(RECORDS, base_offset=9), np.uint8))
    with pytest.raises(CorruptRecord, match="wrong checksum") as caught:
        as_is(batch + damaged[:-1] + b"\xee")
    assert caught.value.position == len(batch)
    with pytest.raises(CorruptRecord) as caught:
        as_is(batch + b"\0" * 40)
    assert (caught.value.fault, caught.value.position) == (Fault.BATCH_LENGTH, len(batch))


def test_markers_of_copies_are_reported() -> None:
    key, value = control_records.encode(EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=3))
    fields: Any = {"producer_id": 5, "producer_epoch": 1, "is_control": True, "is_transactional": True}
    valid = as_is(record_batch.encode([Record(key=key, value=value, timestamp_ms=NOW)], **fields))
    assert valid.producer_batches[0].marker == EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=3)
