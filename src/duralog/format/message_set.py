"""Messages, formats v0 and v1: every record has its own prefix, CRC-32, key and value.

A plain message is a batch of one record. A compressed one ("wrapper") has a codec in its attributes and a value that
unpacks to a run of plain messages; its own offset is that of the last of them. Inner offsets are absolute in v0. In
v1 they count from 0, so that a broker can assign offsets without unpacking: the wrapper's offset minus the last inner
one is what they count from. A wrapper whose offset is 0 comes from old producers that left it unset: its records
count from 0.

With log append time the wrapper's timestamp is that of all records inside; otherwise each has its own, and the
wrapper's is the largest. v0 has no timestamps: they are left out when written and read as -1.

Neither the first offset of a wrapper nor its count is known before it is decompressed: `decode_header` gives -1 for
both, and the first record of `decode_records` has the offset. As with v2, the outer checksum is a verdict in the
header.

Four things are refused here that the reader of Kafka 4.3.1, tried on it, reads over: bytes after a message's value, a
last inner message that is cut off, an inner checksum that is wrong, and v0 inside v1 or the reverse. No known writer
makes them, so in a log they mean damage.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.batch import Batch
from duralog.format.checksum import crc32
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from duralog.format.framing import whole_batch_bytes
from duralog.format.layout import (
    CODEC_MASK,
    ENTRY_PREFIX,
    LOG_APPEND_TIME_BIT,
    MESSAGE_V0,
    MESSAGE_V1,
    NO_TIMESTAMP,
)
from duralog.format.record import Record, TimestampType
from duralog.format.varint import Bytes, as_int64

_LAYOUTS = (MESSAGE_V0, MESSAGE_V1)
_LENGTH = struct.Struct(">i")
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


def decode_header(buffer: Bytes, position: int) -> Batch:
    """The message at `position`. REQUIRES: all of it is in the buffer, magic 0 or 1, with all of the fixed fields."""
    magic = buffer[position + MESSAGE_V0.at.magic]
    if magic == 0:
        offset, length, crc, _, attributes, _ = MESSAGE_V0.unpack(buffer, position)
        timestamp_ms = NO_TIMESTAMP
    else:
        offset, length, crc, _, attributes, timestamp_ms, _ = MESSAGE_V1.unpack(buffer, position)
    size_bytes = ENTRY_PREFIX.size + length
    checked = _checked_bytes(memoryview(buffer), position, size_bytes)
    is_wrapper = bool(attributes & CODEC_MASK)
    return Batch(
        position=position,
        size_bytes=size_bytes,
        magic=magic,
        attributes=attributes,
        base_offset=-1 if is_wrapper else offset,
        last_offset=offset,
        crc=crc,
        crc_ok=crc32(checked) == crc,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        record_count=-1 if is_wrapper else 1,
    )


def decode_records(
    buffer: Bytes, batch: Batch, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The record of a plain message, or those inside a wrapper, with absolute offsets."""
    if batch.codec_id > Codec.LZ4:
        raise CorruptRecord(
            f"unknown codec in format v{batch.magic}",
            fault=Fault.UNKNOWN_CODEC,
            position=batch.position,
            expected="0 to 3",
            found=batch.codec_id,
        )
    codec = Codec(batch.codec_id)
    view = memoryview(buffer)
    key, value = _decode_key_and_value(view, batch)
    if codec is Codec.NONE:
        return [_record(batch, offset=batch.last_offset, timestamp_ms=batch.max_timestamp_ms, key=key, value=value)]
    if value is None:
        raise CorruptRecord(
            "a compressed message without a value",
            fault=Fault.FIELD_VALUE,
            position=batch.position,
            expected="messages",
            found="null",
        )
    try:
        unpacked = decompress(codec, value, magic=batch.magic, max_bytes=max_decompressed_bytes)
    except CorruptRecord as error:
        error.position = batch.position
        raise
    try:
        return _decode_inner(memoryview(unpacked), batch)
    except CorruptRecord as error:
        where = "" if error.position is None else f" at byte {error.position} of the decompressed messages"
        error.reason += where
        error.position = batch.position
        raise


def encode(
    records: Sequence[Record],
    *,
    magic: int,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int | None = None,
) -> bytes:
    """The messages one after the other or, with a codec, one wrapper around them.

    Offsets are the records' own where they are set, otherwise they follow each other from `base_offset`.
    """
    if magic not in (0, 1):
        raise InvalidRecord(f"messages have the format versions 0 and 1, not {magic}")
    if not records:
        raise InvalidRecord("a message set needs a record")
    if base_offset < 0:
        raise InvalidRecord(f"base offset {base_offset} is negative")
    if codec > Codec.LZ4:
        raise InvalidRecord(f"format v{magic} has no {codec.label}")
    has_append_time = magic > 0 and timestamp_type is TimestampType.LOG_APPEND_TIME
    if has_append_time and append_time_ms is None:
        raise InvalidRecord("log append time needs append_time_ms")
    if magic > 0 and timestamp_type is TimestampType.NONE:
        raise InvalidRecord("format v1 has no records without a timestamp type")
    attributes = LOG_APPEND_TIME_BIT if has_append_time else 0

    counts_from = base_offset if codec is not Codec.NONE and magic > 0 else 0
    parts: list[bytes] = []
    offset = base_offset - 1
    max_timestamp_ms = NO_TIMESTAMP
    for record in records:
        if 0 <= record.offset <= offset:
            raise InvalidRecord(f"offset {record.offset} does not follow {offset}")
        offset = record.offset if record.offset >= 0 else offset + 1
        if record.headers:
            raise InvalidRecord(f"format v{magic} has no headers, but the record of offset {offset} does")
        timestamp_ms = record.timestamp_ms
        if has_append_time and append_time_ms is not None:
            timestamp_ms = append_time_ms
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        parts.append(_encode_message(magic, offset - counts_from, attributes, timestamp_ms, record.key, record.value))
    messages = b"".join(parts)
    if codec is Codec.NONE:
        return messages
    packed = compress(codec, messages, magic=magic, level=level)
    return _encode_message(magic, offset, attributes | codec, max_timestamp_ms, None, packed)


def _decode_key_and_value(view: memoryview, batch: Batch) -> tuple[bytes | None, memoryview | None]:
    """Of one message, plain or wrapper."""
    end = batch.position + batch.size_bytes
    position = batch.position + _LAYOUTS[batch.magic].at.key_length
    key, position = _decode_nullable_bytes(view, position, end, batch)
    value, position = _decode_nullable_bytes(view, position, end, batch)
    if position != end:
        raise CorruptRecord(
            "a message's fields end before the message does",
            fault=Fault.RECORD_NOT_CONSUMED,
            position=batch.position,
            expected=0,
            found=f"{end - position} bytes left",
        )
    return None if key is None else bytes(key), value


def _decode_nullable_bytes(view: memoryview, position: int, end: int, batch: Batch) -> tuple[memoryview | None, int]:
    """Any negative length means null, as Kafka reads it, although only -1 is ever written."""
    if end - position < _LENGTH.size:
        raise _field_too_long(batch, end - position, _LENGTH.size)
    (length,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > end - position:
        raise _field_too_long(batch, end - position, length)
    return view[position : position + length], position + length


def _field_too_long(batch: Batch, room: int, found: int) -> CorruptRecord:
    return CorruptRecord(
        "a field runs past its message",
        fault=Fault.FIELD_LENGTH,
        position=batch.position,
        expected=f"at most {room} bytes",
        found=found,
    )


def _decode_inner(view: memoryview, wrapper: Batch) -> list[Record]:
    """The records inside a wrapper. Positions in errors count in the unpacked messages."""
    inner: list[tuple[Batch, bytes | None, memoryview | None]] = []
    end = len(view)
    position = 0
    while position < end:
        message, key, value = decode_inner_message(view, position, end, wrapper)
        inner.append((message, key, value))
        position += message.size_bytes
    if not inner:
        raise CorruptRecord(
            "a compressed message with nothing inside", fault=Fault.RECORD_COUNT, expected="a message", found="none"
        )
    last_message, _, _ = inner[-1]
    counts_from = _inner_offsets_count_from(wrapper, last_message.last_offset)
    has_append_time = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    return [
        _record(
            wrapper,
            offset=as_int64(counts_from + message.last_offset),
            timestamp_ms=wrapper.max_timestamp_ms if has_append_time else message.max_timestamp_ms,
            key=key,
            value=value,
        )
        for message, key, value in inner
    ]


def decode_inner_message(
    view: memoryview, position: int, end: int, wrapper: Batch
) -> tuple[Batch, bytes | None, memoryview | None]:
    """The header, key and value of one message among those that a wrapper unpacked to."""
    if whole_batch_bytes(view, position, end) is None:
        raise CorruptRecord(
            "the last message inside a compressed one is cut off",
            fault=Fault.RECORD_LENGTH,
            position=position,
            expected="a whole message",
            found=f"{end - position} bytes",
        )
    message = _decode_inner_header(view, position, wrapper)
    return message, *_decode_key_and_value(view, message)


def _decode_inner_header(view: memoryview, position: int, wrapper: Batch) -> Batch:
    magic = view[position + MESSAGE_V0.at.magic]
    if magic != wrapper.magic:
        raise CorruptRecord(
            "a message of another format inside a compressed one",
            fault=Fault.INNER_MAGIC,
            position=position,
            expected=wrapper.magic,
            found=magic,
        )
    message = decode_header(view, position)
    if message.codec_id != Codec.NONE:
        raise CorruptRecord(
            "a compressed message inside a compressed one",
            fault=Fault.NESTED_COMPRESSION,
            position=position,
            expected=int(Codec.NONE),
            found=message.codec_id,
        )
    if not message.crc_ok:
        raise CorruptRecord(
            "wrong checksum of a message inside a compressed one",
            fault=Fault.CRC_MISMATCH,
            position=position,
            expected=f"{crc32(_checked_bytes(view, position, message.size_bytes)):#010x}",
            found=f"{message.crc:#010x}",
        )
    return message


def _inner_offsets_count_from(wrapper: Batch, last_inner_offset: int) -> int:
    if wrapper.magic == 0 or wrapper.last_offset == 0:
        return 0
    if wrapper.last_offset < last_inner_offset:
        raise CorruptRecord(
            "a compressed message's offset is smaller than its last inner one",
            fault=Fault.INNER_OFFSET,
            expected=f"at least {last_inner_offset}",
            found=wrapper.last_offset,
        )
    return wrapper.last_offset - last_inner_offset


def _record(batch: Batch, *, offset: int, timestamp_ms: int, key: bytes | None, value: memoryview | None) -> Record:
    return Record(
        key=key,
        value=None if value is None else bytes(value),
        timestamp_ms=timestamp_ms,
        offset=offset,
        timestamp_type=batch.timestamp_type,
    )


def _checked_bytes(view: memoryview, position: int, size_bytes: int) -> memoryview:
    """What the checksum of the message at `position` covers."""
    return view[position + MESSAGE_V0.at.magic : position + size_bytes]


def _encode_message(
    magic: int, offset: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    layout = _LAYOUTS[magic]
    length = layout.size - ENTRY_PREFIX.size + len(key or b"") + _LENGTH.size + len(value or b"")
    if length > _INT32_MAX:
        raise InvalidRecord(f"a message of {length} bytes is too large for its length field")
    if offset > _INT64_MAX:
        raise InvalidRecord(f"offset {offset} is larger than {_INT64_MAX}")
    if magic > 0 and not NO_TIMESTAMP <= timestamp_ms <= _INT64_MAX:
        raise InvalidRecord(f"timestamp {timestamp_ms} of offset {offset} is out of range")
    timestamp = (timestamp_ms,) if magic > 0 else ()
    key_length = -1 if key is None else len(key)
    message = bytearray(layout.pack(offset, length, 0, magic, attributes, *timestamp, key_length))
    message += key or b""
    message += _LENGTH.pack(-1 if value is None else len(value))
    message += value or b""
    struct.pack_into(">I", message, layout.at.crc, crc32(memoryview(message)[layout.at.magic :]))
    return bytes(message)
