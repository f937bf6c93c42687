"""Validation and its kernel, against plain Python over the reference decoder.

Batches of all kinds are made, some as no honest client sends them, and damaged behind their checksum. The kernel must
find the same fault at the same place, or the same facts; an append must be refused for the same reason, or write a
batch that reads as the rules say.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, DuralogError, Fault, InvalidRecord, InvalidTimestamp, RecordTooLarge
from duralog.format import batches, record_batch
from duralog.format.batch import Batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress, decompress
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from duralog.format.varint import as_int64, encode_varint, encode_varlong
from duralog.kernels.validate import CONSECUTIVE, WITHOUT_KEY, inspect_batch, inspect_records
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.validation import ValidBatches, validate

NOW = 1_700_000_000_000
HOUR = 3_600_000
NEXT_OFFSET = 500
EPOCH = 3

payloads = st.none() | st.binary(max_size=6) | st.binary(min_size=120, max_size=140)
times = st.sampled_from([-1, NOW, NOW - 10, NOW + 10, NOW + 2 * HOUR, NOW - 2 * HOUR, 0, -7, 2**63 - 1])
headers = st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.binary(max_size=2)), max_size=2)


@dataclass
class RawRecord:
    """A record as it is encoded, so that deltas and attributes can be anything."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    attributes: int

    def encode(self) -> bytes:
        parts = [
            bytes([self.attributes]),
            encode_varlong(self.timestamp_delta),
            encode_varint(self.offset_delta),
            *map(field, (self.key, self.value)),
            encode_varint(len(self.headers)),
        ]
        for key, value in self.headers:
            parts += [field(key.encode()), field(value)]
        body = b"".join(parts)
        return encode_varint(len(body)) + body


def field(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


@st.composite
def made_batches(draw: st.DrawFn) -> bytes:
    """A whole batch with a right checksum. Most are honest; each dishonesty is drawn on its own."""
    odd = draw(st.integers(0, 3)) == 0
    count = draw(st.integers(1, 5))
    all_times = [draw(times) for _ in range(count)]
    base_timestamp = draw(times) if odd else all_times[0]
    offset_deltas = [draw(st.integers(-1, 5)) for _ in range(count)] if odd else list(range(count))
    content = b"".join(
        RawRecord(
            timestamp_delta=as_int64(time - base_timestamp),
            offset_delta=offset_delta,
            key=draw(payloads),
            value=draw(payloads),
            headers=draw(headers),
            attributes=draw(st.sampled_from([0, 0, 9])) if odd else 0,
        ).encode()
        for time, offset_delta in zip(all_times, offset_deltas, strict=True)
    )
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(content) - 1))
        content = content[:place] + draw(st.binary(max_size=3)) + content[place + draw(st.integers(0, 3)) :]
    codec = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 4, 5] if odd else [0, 0, 0, 1, 2, 3, 4]))
    body = compress(Codec(codec), content) if codec in tuple(Codec) else content
    has_producer = draw(st.booleans())
    attributes = codec
    if has_producer and draw(st.booleans()):
        attributes |= 0x10
    if odd:
        attributes |= draw(st.sampled_from([0, 0, 0x08, 0x08, 0x20, 0x40]))
    header = BATCH_V2.pack(
        draw(st.sampled_from([0, 0, 0, 0, 0, 4])) if odd else 0,
        BATCH_V2.size - 12 + len(body),
        -1,
        2,
        0,
        attributes,
        count - 1 + (draw(st.sampled_from([0, 0, 0, 0, 0, 1])) if odd else 0),
        base_timestamp,
        draw(times) if odd else max([-1, *all_times]),
        7 if has_producer else -1,
        1 if has_producer else -1,
        (draw(st.sampled_from([5, 5, 5, -1])) if odd else 5) if has_producer else -1,
        count + (draw(st.sampled_from([0, 0, 0, 0, 0, 1, -9])) if odd else 0),
    )
    made = bytearray(header + body)
    struct.pack_into(">I", made, BATCH_V2.at.crc, crc32c(made[BATCH_V2.at.attributes :]))
    if odd and draw(st.integers(0, 8)) == 0:
        made[draw(st.integers(0, len(made) - 1))] ^= draw(st.integers(1, 255))
    return bytes(made)


configs = st.builds(
    TopicConfig,
    cleanup_policy=st.sampled_from([frozenset({"delete"}), frozenset({"delete"}), frozenset({"compact", "delete"})]),
    compression_type=st.sampled_from(["producer", "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    max_message_bytes=st.sampled_from([1_000_000, 1_000_000, 1_000_000, 200]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=st.sampled_from([2**63 - 1, 2**63 - 1, HOUR]),
    message_timestamp_after_max_ms=st.sampled_from([HOUR, 2**63 - 1]),
)


def scanned(data: bytes) -> Batch | None:
    """The batch at the start, by the reference; None if it is not all there."""
    return next(iter(batches.scan(data)), None)


# The kernel


def told_by_reference(data: bytes) -> tuple[Any, ...]:
    try:
        batch = scanned(data)
        if batch is None:
            return Fault.PARTIAL_BATCH, 0
        if batch.magic != 2:
            return Fault.UNKNOWN_MAGIC, 0
        if not batch.crc_ok:
            return Fault.CRC_MISMATCH, 0
        records = record_batch.decode_records(data, batch)
    except CorruptRecord as error:
        return error.fault, error.position
    real = [record.timestamp_ms for record in records if record.timestamp_ms != -1]
    return (
        Fault.NONE,
        min(real, default=-1),
        max([-1, *real]),
        [record.offset - batch.base_offset for record in records] == list(range(len(records))),
        any(record.key is None for record in records),
    )


def told_by_kernel(data: bytes) -> tuple[Any, ...]:
    """Where the reference reports no place but the batch, in a compressed one or of a count, neither does this."""
    fault, where, smallest, largest, traits, size, _ = inspect_batch(np.frombuffer(data, np.uint8), 0)
    if fault == Fault.NONE and data[BATCH_V2.at.attributes + 1] & 7:
        batch = record_batch.decode_header(data, 0)
        try:
            records = decompress(Codec(batch.codec_id), data[BATCH_V2.size : size])
        except CorruptRecord as error:
            return error.fault, 0
        except ValueError:
            return Fault.UNKNOWN_CODEC, 0
        one_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        fault, where, smallest, largest, traits = inspect_records(
            np.frombuffer(records, np.uint8),
            batch.record_count,
            batch.max_timestamp_ms if one_time else batch.base_timestamp_ms,
            0 if one_time else -1,
        )
        where = 0
    if fault != Fault.NONE:
        return Fault(fault), 0 if fault == Fault.RECORD_COUNT else where
    return Fault.NONE, smallest, largest, bool(traits & CONSECUTIVE), bool(traits & WITHOUT_KEY)


@given(made_batches())
def test_the_kernel_sees_what_the_reference_sees(data: bytes) -> None:
    assert told_by_kernel(data) == told_by_reference(data)


# The rules


def expected(data: bytes, config: TopicConfig) -> type[DuralogError] | list[Record]:
    """The error that an append must raise, or the records that it must write."""
    batch = scanned(data)
    if batch is None:
        return InvalidRecord
    if batch.magic != 2 or batch.base_offset != 0:
        return InvalidRecord
    if batch.size_bytes > config.max_message_bytes:
        return RecordTooLarge
    if not batch.crc_ok:
        return CorruptRecord
    if batch.record_count <= 0 or batch.last_offset + 1 != batch.record_count or batch.is_control:
        return InvalidRecord
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return InvalidRecord
    records = record_batch.decode_records(data, batch)
    is_append_time = config.message_timestamp_type == "LogAppendTime"
    is_told_append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    errors: list[type[DuralogError]] = []
    for record in records:
        if record.key is None and "compact" in config.cleanup_policy:
            errors.append(InvalidRecord)
        elif is_append_time or record.timestamp_ms == -1:
            errors += [InvalidTimestamp] if is_told_append_time else []
        else:
            age = NOW - record.timestamp_ms
            if age > config.message_timestamp_before_max_ms or -age > config.message_timestamp_after_max_ms:
                errors.append(InvalidTimestamp)
    if errors:
        return InvalidTimestamp if InvalidTimestamp in errors else InvalidRecord
    return records


def outcome(data: bytes, config: TopicConfig) -> type[DuralogError] | list[Record]:
    try:
        return expected(data, config)
    except CorruptRecord:
        return CorruptRecord


def appended(data: bytes, config: TopicConfig) -> ValidBatches | DuralogError:
    try:
        return validate(bytearray(data), config=config, stamp=Stamp(NEXT_OFFSET, EPOCH, NOW))
    except DuralogError as error:
        return error


@given(made_batches(), configs)
def test_an_append_keeps_the_rules(data: bytes, config: TopicConfig) -> None:
    wanted = outcome(data, config)
    valid = appended(data, config)
    if not isinstance(wanted, list):
        assert type(valid) is wanted
    elif isinstance(valid, RecordTooLarge):
        assert config.max_message_bytes == 200, "a small batch can outgrow the limit when it is built anew"
    elif isinstance(valid, DuralogError):
        assert type(valid) is InvalidRecord
        assert any(record.timestamp_ms < -1 for record in wanted), "only such a record cannot be encoded anew"
    else:
        check_written(data, config, wanted, valid)


def check_written(data: bytes, config: TopicConfig, wanted: list[Record], valid: ValidBatches) -> None:
    source = record_batch.decode_header(data, 0)
    written = bytes(valid.buffers[0])
    batch = record_batch.decode_header(written, 0)
    records = record_batch.decode_records(written, batch)
    assert len(valid.buffers) == 1
    assert valid.extents == [(0, len(written), batch.last_offset, batch.max_timestamp_ms)]
    assert batch.size_bytes == len(written) == valid.size_bytes
    assert batch.crc_ok
    assert batch.leader_epoch == EPOCH
    assert (batch.base_offset, batch.last_offset) == (valid.base_offset, valid.last_offset)
    assert [record.offset for record in records] == [NEXT_OFFSET + index for index in range(len(wanted))]
    for name in ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "record_count"):
        assert getattr(batch, name) == getattr(source, name)
    label = Codec(source.codec_id).label if config.compression_type == "producer" else config.compression_type
    assert Codec(batch.codec_id).label == label.replace("uncompressed", "none")
    assert [(record.key, record.value, record.headers) for record in records] == [
        (record.key, record.value, record.headers) for record in wanted
    ]
    if config.message_timestamp_type == "LogAppendTime":
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert batch.max_timestamp_ms == NOW
    else:
        assert batch.timestamp_type is TimestampType.CREATE_TIME
        assert batch.max_timestamp_ms == max([-1, *(record.timestamp_ms for record in wanted)])
        if source.timestamp_type is TimestampType.CREATE_TIME:
            assert [record.timestamp_ms for record in records] == [record.timestamp_ms for record in wanted]
    is_honest = (source.attributes, source.max_timestamp_ms) == (batch.attributes, batch.max_timestamp_ms)
    if is_honest and [record.offset for record in wanted] == list(range(len(wanted))):
        assert written[16:] == data[16:]
