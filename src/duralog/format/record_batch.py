"""Record batches, format v2: a header of 61 bytes, then records that are compressed together when there is a codec.

`decode_header` reads what `batches.scan` found; `decode_records` reads the records; `encode` writes a whole batch
exactly as Kafka's own writer does. Checks run in one fixed order, the kernels' order too, so that both refuse the
same bytes for the same fault at the same position. The position of a fault inside a record is the record's first byte.
In a compressed batch that byte is not in the buffer: the position is then the batch's, and the reason names the byte in
the decompressed records.

The checksum is a verdict in the header (`Batch.crc_ok`), not a condition: records of a batch with a wrong one can be
decoded, with the same care for every length, by those who want to see what is left.

One thing is refused here that the reader of Kafka 4.3.1, tried on it, reads over: a batch that claims no records and
yet has bytes after its header, or an unknown codec. No known writer makes them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.batch import Batch
from duralog.format.checksum import crc32c
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from duralog.format.layout import (
    BATCH_V2,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from duralog.format.record import Header, Record, TimestampType
from duralog.format.varint import (
    Bytes,
    as_int64,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)

MAGIC = 2

MIN_RECORD_BYTES = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, header count: a byte each."""

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_NULL_LENGTH = encode_varint(-1)


def decode_header(buffer: Bytes, position: int) -> Batch:
    """The batch at `position`. REQUIRES: all of it is in the buffer, and it has a whole header."""
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = BATCH_V2.unpack(buffer, position)
    size_bytes = BATCH_V2.at.leader_epoch + length
    checked = memoryview(buffer)[position + BATCH_V2.at.attributes : position + size_bytes]
    return Batch(
        position=position,
        size_bytes=size_bytes,
        magic=magic,
        attributes=attributes,
        base_offset=base_offset,
        last_offset=as_int64(base_offset + last_offset_delta),
        crc=crc,
        crc_ok=crc32c(checked) == crc,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        record_count=record_count,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def decode_records(
    buffer: Bytes, batch: Batch, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of a batch whose header was decoded from the same buffer."""
    try:
        codec = Codec(batch.codec_id)
    except ValueError:
        raise CorruptRecord(
            "unknown codec",
            fault=Fault.UNKNOWN_CODEC,
            position=batch.position,
            expected="0 to 4",
            found=batch.codec_id,
        ) from None
    start = batch.position + BATCH_V2.size
    end = batch.position + batch.size_bytes
    if codec is Codec.NONE:
        return _decode_run(memoryview(buffer), start, end, batch)

    packed = memoryview(buffer)[start:end]
    try:
        unpacked = memoryview(decompress(codec, packed, magic=MAGIC, max_bytes=max_decompressed_bytes))
        return _decode_run(unpacked, 0, len(unpacked), batch)
    except CorruptRecord as error:
        where = ""
        if error.fault not in (Fault.DECOMPRESSION, Fault.TOO_LARGE, Fault.RECORD_COUNT):
            where = f" at byte {error.position} of the decompressed records"
        raise CorruptRecord(
            error.reason + where,
            fault=error.fault,
            position=batch.position,
            expected=error.expected,
            found=error.found,
        ) from None


# More than seven parameters: each is a field of the batch header, under the name that it has there.
def encode(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
    max_timestamp_ms: int | None = None,
) -> bytes:
    """A whole batch.

    Offsets are the records' own where they are set, otherwise they follow each other from `base_offset`.
    `last_offset` is needed when it is not the last record's, as in a compacted batch, or when there are no records.
    `max_timestamp_ms` is for a batch without records, which remembers that of the records it had.
    """
    attributes = _attributes(codec, timestamp_type, is_transactional, is_control, delete_horizon_ms)
    if delete_horizon_ms is not None:
        base_timestamp_ms = delete_horizon_ms
    else:
        base_timestamp_ms = records[0].timestamp_ms if records else NO_TIMESTAMP

    parts: list[bytes] = []
    offset = base_offset - 1
    for record in records:
        if 0 <= record.offset <= offset:
            raise InvalidRecord(f"offset {record.offset} does not follow {offset}")
        offset = record.offset if record.offset >= 0 else offset + 1
        parts.append(
            _encode_record(record, base_offset=base_offset, offset=offset, base_timestamp_ms=base_timestamp_ms)
        )

    if last_offset is None:
        if not records:
            raise InvalidRecord("a batch without records needs a last offset")
        last_offset = offset
    elif last_offset < max(offset, base_offset):
        raise InvalidRecord(f"last offset {last_offset} is smaller than {max(offset, base_offset)}")
    if base_offset < 0 or last_offset > _INT64_MAX:
        raise InvalidRecord(f"offsets {base_offset} to {last_offset} are not within 0 to {_INT64_MAX}")

    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        if append_time_ms is None:
            raise InvalidRecord("log append time needs append_time_ms")
        max_timestamp_ms = append_time_ms
    elif max_timestamp_ms is None:
        max_timestamp_ms = max((record.timestamp_ms for record in records), default=NO_TIMESTAMP)

    body = compress(codec, b"".join(parts), magic=MAGIC, level=level)
    length = BATCH_V2.size - BATCH_V2.at.leader_epoch + len(body)
    if length > _INT32_MAX:
        raise InvalidRecord(f"a batch of {length} bytes is too large for its length field")
    crc = 0
    try:
        header = bytearray(
            BATCH_V2.pack(
                base_offset,
                length,
                leader_epoch,
                MAGIC,
                crc,
                attributes,
                last_offset - base_offset,
                base_timestamp_ms,
                max_timestamp_ms,
                producer_id,
                producer_epoch,
                base_sequence,
                len(records),
            )
        )
    except struct.error as error:
        raise InvalidRecord(f"a field of the batch header is out of range: {error}") from None
    whole = header + body
    crc = crc32c(memoryview(whole)[BATCH_V2.at.attributes :])
    struct.pack_into(">I", whole, BATCH_V2.at.crc, crc)
    return bytes(whole)


def _decode_run(data: memoryview, start: int, end: int, batch: Batch) -> list[Record]:
    """The records in data[start:end]. Positions in errors count in `data`."""
    count = batch.record_count
    if count < 0 or count * MIN_RECORD_BYTES > end - start:
        raise CorruptRecord(
            "impossible record count",
            fault=Fault.RECORD_COUNT,
            position=batch.position,
            expected=f"0 to {(end - start) // MIN_RECORD_BYTES} in {end - start} bytes",
            found=count,
        )
    records: list[Record] = []
    position = start
    for _ in range(count):
        try:
            record, position = decode_record(data, position, end, batch)
        except CorruptRecord as error:
            error.position = position
            raise
        records.append(record)
    if position != end:
        raise CorruptRecord(
            "bytes are left after the last record",
            fault=Fault.TRAILING_BYTES,
            position=position,
            expected=0,
            found=end - position,
        )
    return records


def decode_record(data: memoryview, position: int, end: int, batch: Batch) -> tuple[Record, int]:
    """The record at `position` and where it ends. Errors have no position: it is the record's."""
    length, position = decode_varint(data, position, end)
    if not 0 <= length <= end - position:
        raise CorruptRecord(
            "a record's length does not fit its batch",
            fault=Fault.RECORD_LENGTH,
            expected=f"0 to {end - position}",
            found=length,
        )
    record_end = position + length
    if length == 0:
        raise CorruptRecord("a record without fields", fault=Fault.FIELD_LENGTH, expected="attributes", found="nothing")
    position += 1  # attributes, which no version gave a meaning
    timestamp_delta, position = decode_varlong(data, position, record_end)
    offset_delta, position = decode_varint(data, position, record_end)
    key, position = _decode_nullable_bytes(data, position, record_end)
    value, position = _decode_nullable_bytes(data, position, record_end)
    headers, position = _decode_headers(data, position, record_end)
    if position != record_end:
        raise CorruptRecord(
            "a record's fields end before the record does",
            fault=Fault.RECORD_NOT_CONSUMED,
            expected=0,
            found=f"{record_end - position} bytes left",
        )
    timestamp_type = batch.timestamp_type
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp_ms = batch.max_timestamp_ms
    else:
        timestamp_ms = as_int64(batch.base_timestamp_ms + timestamp_delta)
    record = Record(
        key=key,
        value=value,
        timestamp_ms=timestamp_ms,
        headers=headers,
        offset=as_int64(batch.base_offset + offset_delta),
        timestamp_type=timestamp_type,
    )
    return record, position


def _decode_headers(data: memoryview, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(data, position, end)
    if not 0 <= count <= end - position:
        raise CorruptRecord(
            "impossible count of headers", fault=Fault.HEADER_COUNT, expected=f"0 to {end - position}", found=count
        )
    headers: list[Header] = []
    for _ in range(count):
        key, position = _decode_nullable_bytes(data, position, end)
        if key is None:
            raise CorruptRecord("a header without a key", fault=Fault.HEADER_KEY, expected="a key", found="null")
        value, position = _decode_nullable_bytes(data, position, end)
        headers.append((key.decode("utf-8", errors="replace"), value))
    return tuple(headers), position


def _decode_nullable_bytes(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    """Any negative length means null, as Kafka reads it, although only -1 is ever written."""
    length, position = decode_varint(data, position, end)
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptRecord(
            "a field runs past its record",
            fault=Fault.FIELD_LENGTH,
            expected=f"at most {end - position} bytes",
            found=length,
        )
    return bytes(data[position : position + length]), position + length


def _encode_record(record: Record, *, base_offset: int, offset: int, base_timestamp_ms: int) -> bytes:
    if record.timestamp_ms < NO_TIMESTAMP or record.timestamp_ms > _INT64_MAX:
        raise InvalidRecord(f"timestamp {record.timestamp_ms} of offset {offset} is out of range")
    parts = [
        b"\x00",
        encode_varlong(as_int64(record.timestamp_ms - base_timestamp_ms)),
        encode_varint(offset - base_offset),
        *_encode_nullable_bytes(record.key),
        *_encode_nullable_bytes(record.value),
        encode_varint(len(record.headers)),
    ]
    for key, value in record.headers:
        if not isinstance(key, str):
            raise InvalidRecord(f"the record of offset {offset} has a header whose key is not a string")
        try:
            encoded_key = key.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the record of offset {offset} has a header key that is not text: {error}") from None
        parts += _encode_nullable_bytes(encoded_key)
        parts += _encode_nullable_bytes(value)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_nullable_bytes(data: bytes | None) -> tuple[bytes, ...]:
    if data is None:
        return (_NULL_LENGTH,)
    return encode_varint(len(data)), data


def _attributes(
    codec: Codec,
    timestamp_type: TimestampType,
    is_transactional: bool,
    is_control: bool,
    delete_horizon_ms: int | None,
) -> int:
    if timestamp_type is TimestampType.NONE:
        raise InvalidRecord("format v2 has no records without a timestamp type")
    attributes = int(codec)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    return attributes
