"""Batches that are damaged on purpose, behind checksums that are right: what a bad writer or an attacker would send.

Each is named by what is wrong with it. Those without a fault stand between them because other clients write them.
"""

from __future__ import annotations

import gzip
import struct

import cramjam

from duralog.format import record_batch
from duralog.format.checksum import crc32, crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2, MESSAGE_V0, MESSAGE_V1
from duralog.format.record import Record
from duralog.format.varint import encode_varint, encode_varlong

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_TIMESTAMP_MS = 1_700_000_000_000


def batch(
    records: bytes,
    *,
    count: int = 1,
    attributes: int = 0,
    last_offset_delta: int = 0,
    max_timestamp_ms: int = _TIMESTAMP_MS,
    base_timestamp_ms: int = _TIMESTAMP_MS,
    base_offset: int = 40,
) -> bytes:
    """A v2 batch around these bytes, with the right length and checksum."""
    length = BATCH_V2.size - 12 + len(records)
    fields = (last_offset_delta, base_timestamp_ms, max_timestamp_ms, -1, -1, -1, count)
    whole = bytearray(BATCH_V2.pack(base_offset, length, 0, 2, 0, attributes, *fields) + records)
    return seal(whole)


def seal(whole: bytearray) -> bytes:
    struct.pack_into(">I", whole, BATCH_V2.at.crc, crc32c(bytes(whole[BATCH_V2.at.attributes :])))
    return bytes(whole)


def record(
    *,
    attributes: int = 0,
    timestamp_delta: int = 0,
    offset_delta: int = 0,
    key: bytes = b"\x06key",
    value: bytes = b"\x0avalue",
    headers: bytes = b"\x00",
    length: bytes | None = None,
) -> bytes:
    """A v2 record of fields as they are stored, each with its own length before it."""
    body = bytes([attributes]) + encode_varlong(timestamp_delta) + encode_varint(offset_delta) + key + value + headers
    return (encode_varint(len(body)) if length is None else length) + body


def message(
    magic: int, key: bytes | None, value: bytes | None, *, offset: int = 0, attributes: int = 0, tail: bytes = b""
) -> bytes:
    """A v0 or v1 message with the right length and checksum; the tail is part of it."""
    fields = nullable(key) + nullable(value) + tail
    timestamp = struct.pack(">q", _TIMESTAMP_MS) if magic else b""
    return sealed_message(offset, bytes([magic, attributes]) + timestamp + fields)


def sealed_message(offset: int, after_crc: bytes) -> bytes:
    return struct.pack(">qiI", offset, 4 + len(after_crc), crc32(after_crc)) + after_crc


def nullable(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def wrapper(magic: int, inner: bytes, *, offset: int = 1, codec: int = GZIP, key: bytes | None = None) -> bytes:
    return message(magic, key, compress(Codec(codec), inner, magic=magic), offset=offset, attributes=codec)


def _two(magic: int, first: int = 0) -> bytes:
    return message(magic, b"a", b"1", offset=first) + message(magic, b"b", None, offset=first + 1)


def _patched(data: bytes, position: int, replacement: bytes) -> bytes:
    return data[:position] + replacement + data[position + len(replacement) :]


_GOOD = record()
_TWO = record() + record(offset_delta=1, timestamp_delta=5)


def _v2_batches() -> dict[str, bytes]:
    whole = batch(_GOOD)
    length_at = BATCH_V2.at.length
    return {
        "nothing wrong": whole,
        "wrong checksum": _patched(whole, len(whole) - 2, b"X"),
        "length field 0": _patched(whole, length_at, struct.pack(">i", 0)),
        "length field 13": _patched(whole, length_at, struct.pack(">i", 13)),
        "length field negative": _patched(whole, length_at, struct.pack(">i", -1)),
        "length field too small for v2": _patched(whole, length_at, struct.pack(">i", 48)),
        "length field past the end": _patched(whole, length_at, struct.pack(">i", 10_000)),
        "magic 3": _patched(whole, BATCH_V2.at.magic, b"\x03"),
        "magic -1": _patched(whole, BATCH_V2.at.magic, b"\xff"),
        "record count negative": batch(_GOOD, count=-1),
        "record count too large": batch(_GOOD, count=2),
        "record count absurd": batch(_GOOD, count=2**31 - 1),
        "record count too small": batch(_TWO, count=1, last_offset_delta=1),
        "record count 0, with records": batch(_GOOD, count=0),
        "record count 0, without records": batch(b"", count=0),
        "unused attribute bits": batch(_GOOD, attributes=0x7F80),
        "negative attributes": batch(_GOOD, attributes=-0x80),
        "transactional without a producer": batch(_GOOD, attributes=0x10),
        "control batch with any key": batch(_GOOD, attributes=0x30),
        "log append time without a time": batch(_GOOD, attributes=0x08, max_timestamp_ms=-1),
        "last offset delta negative": batch(_GOOD, last_offset_delta=-5),
        "last offset delta too small": batch(_TWO, count=2, last_offset_delta=0),
        "base offset negative": batch(_GOOD, base_offset=-7),
        "largest timestamp too small": batch(_GOOD, max_timestamp_ms=3),
    }


def _v2_records() -> dict[str, bytes]:
    body = len(_GOOD) - 1
    header = b"\x02\x02h\x02x"
    return {
        "record length one less": batch(record(length=encode_varint(body - 1))),
        "record length one more": batch(record(length=encode_varint(body + 1))),
        "record length one more, a byte there": batch(record(length=encode_varint(body + 1)) + b"\x00"),
        "record length 0": batch(b"\x00" + b"\x00" * 8),
        "record length negative": batch(record(length=encode_varint(-5))),
        "record length huge": batch(record(length=encode_varint(2**31 - 1))),
        "record length in five bytes": batch(record(length=bytes([0x80 | body * 2, 0x80, 0x80, 0x80, 0x00]))),
        "record length with bits past 32": batch(record(length=bytes([0x80 | body * 2, 0x80, 0x80, 0x80, 0x70]))),
        "record length in six bytes": batch(record(length=bytes([0x80 | body * 2, 0x80, 0x80, 0x80, 0x80, 0x00]))),
        "record length never ends": batch(b"\xff" * 20),
        "record attributes set": batch(record(attributes=0xFF)),
        "offset delta negative": batch(record(offset_delta=-3)),
        "offset delta past the last": batch(record(offset_delta=100)),
        "offsets fall": batch(record(offset_delta=5) + record(offset_delta=2), count=2, last_offset_delta=5),
        "offset overflows": batch(record(offset_delta=2**31 - 1), base_offset=2**63 - 5),
        "timestamp delta negative": batch(record(timestamp_delta=-(10**15))),
        "timestamp overflows": batch(record(timestamp_delta=2**63 - 1)),
        "timestamp delta never ends": batch(b"\x28\x00" + b"\xff" * 19),
        "key length -2": batch(record(key=encode_varint(-2))),
        "value length -100": batch(record(value=encode_varint(-100))),
        "key length smallest": batch(record(key=encode_varint(-(2**31)))),
        "key past the record": batch(record(key=encode_varint(50) + b"key")),
        "value past the record": batch(record(value=encode_varint(50) + b"value")),
        "value past the record, bytes there": batch(record(value=encode_varint(8) + b"value") + record(), count=2),
        "value length huge": batch(record(value=encode_varint(2**31 - 1))),
        "no room for the header count": batch(record(headers=b"")),
        "header count negative": batch(record(headers=encode_varint(-1))),
        "header count too large": batch(record(headers=encode_varint(100) + header[1:])),
        "header count absurd": batch(record(headers=encode_varint(2**31 - 1))),
        "header count too small": batch(record(headers=b"\x02" + header[1:] * 2)),
        "one good header": batch(record(headers=header)),
        "header without a key": batch(record(headers=b"\x02" + encode_varint(-1) + b"\x02x")),
        "header with an empty key": batch(record(headers=b"\x02\x00\x02x")),
        "header value length -5": batch(record(headers=b"\x02\x02h" + encode_varint(-5))),
        "header key past the record": batch(record(headers=b"\x02" + encode_varint(90) + b"h\x02x")),
        "header value past the record": batch(record(headers=b"\x02\x02h" + encode_varint(90) + b"x")),
        "header key is not UTF-8": batch(record(headers=b"\x02\x06\xff\xfeh\x02x")),
        "header key is cut UTF-8": batch(record(headers=b"\x02\x04\xe4\xb8\x02x")),
        "header key is a surrogate": batch(record(headers=b"\x02\x06\xed\xa0\x80\x02x")),
    }


def _v2_codecs() -> dict[str, bytes]:
    def packed(codec: int, content: bytes, *, count: int = 2) -> bytes:
        return batch(content, attributes=codec, count=count, last_offset_delta=1)

    gzipped, snappied, lz4ed, zstded = (compress(Codec(codec), _TWO) for codec in (GZIP, SNAPPY, LZ4, ZSTD))
    lz4_with_checksums = bytes(cramjam.lz4.compress(_TWO))
    cases = {
        "codec 5": packed(5, gzipped),
        "codec 7": packed(7, gzipped),
        "raw snappy": packed(SNAPPY, bytes(cramjam.snappy.compress_raw(_TWO))),
        "snappy in two xerial streams": packed(
            SNAPPY, compress(Codec.SNAPPY, record()) + compress(Codec.SNAPPY, _TWO[len(record()) :])
        ),
        "snappy of a later version": packed(SNAPPY, _patched(snappied, 8, struct.pack(">ii", 9, 9))),
        "snappy block length negative": packed(SNAPPY, _patched(snappied, 16, struct.pack(">i", -1))),
        "snappy block past the end": packed(SNAPPY, _patched(snappied, 16, struct.pack(">i", 9999))),
        "gzip in two members": packed(GZIP, gzip.compress(record()) + gzip.compress(_TWO[len(record()) :])),
        "gzip with a wrong checksum": packed(GZIP, _patched(gzipped, len(gzipped) - 8, b"\0\0\0\0")),
        "lz4 with a content checksum and size": packed(LZ4, lz4_with_checksums),
        "lz4 with a wrong header checksum": packed(LZ4, _patched(lz4ed, 6, b"\x1a")),
        "lz4 with a wrong magic": packed(LZ4, _patched(lz4ed, 0, b"\0\0\0\0")),
        "lz4 in two frames": packed(LZ4, compress(Codec.LZ4, record()) + compress(Codec.LZ4, _TWO[len(record()) :])),
        "zstd in two frames": packed(
            ZSTD, compress(Codec.ZSTD, record()) + compress(Codec.ZSTD, _TWO[len(record()) :])
        ),
        "zstd with the content size": packed(ZSTD, bytes(cramjam.zstd.compress(_TWO))),
        "zstd with a skippable frame": packed(ZSTD, b"\x50\x2a\x4d\x18\x04\0\0\0skip" + zstded),
    }
    for name, codec, content in [
        ("gzip", GZIP, gzipped),
        ("snappy", SNAPPY, snappied),
        ("lz4", LZ4, lz4ed),
        ("zstd", ZSTD, zstded),
    ]:
        cases |= {
            f"{name}, nothing wrong": packed(codec, content),
            f"{name}, garbage": packed(codec, b"\x13garbage, and not a little of it"),
            f"{name}, nothing": packed(codec, b""),
            f"{name}, no records and no bytes": packed(codec, b"", count=0),
            f"{name}, no records": packed(codec, compress(Codec(codec), b""), count=0),
            f"{name}, cut by 1": packed(codec, content[:-1]),
            f"{name}, cut in half": packed(codec, content[: len(content) // 2]),
            f"{name}, garbage behind": packed(codec, content + b"garbage"),
            f"{name}, zeros behind": packed(codec, content + bytes(8)),
            f"{name}, record count too large": packed(codec, content, count=3),
            f"{name}, record count too small": packed(codec, content, count=1),
        }
    return cases


def _messages(magic: int) -> dict[str, bytes]:
    layout = MESSAGE_V1 if magic else MESSAGE_V0
    header = layout.at.key_length
    plain = message(magic, b"key", b"value", offset=9)

    def with_fields(fields: bytes) -> bytes:
        return sealed_message(9, plain[layout.at.magic : header] + fields)

    inner = _two(magic)
    relative = 0 if magic else 8
    good = wrapper(magic, _two(magic, relative), offset=9)
    cases = {
        "nothing wrong": plain,
        "wrong checksum": _patched(plain, len(plain) - 1, b"X"),
        "length field too small": _patched(plain, layout.at.length, struct.pack(">i", 13)),
        "length field one less than the smallest": with_fields(b"")[:8]
        + struct.pack(">i", layout.size + 3 - 12)
        + with_fields(bytes(8))[12:-1],
        "both null": with_fields(nullable(None) * 2),
        "key length -2": with_fields(struct.pack(">i", -2) + nullable(b"value")),
        "value length -9": with_fields(nullable(b"key") + struct.pack(">i", -9)),
        "key past the message": with_fields(struct.pack(">i", 99) + b"key" + nullable(b"value")),
        "key leaves no room for a value": with_fields(struct.pack(">i", 12) + b"key" + nullable(b"value")),
        "value past the message": with_fields(nullable(b"key") + struct.pack(">i", 6) + b"value"),
        "bytes behind the value": with_fields(nullable(b"key") + nullable(b"value") + b"tail"),
        "codec 4": message(magic, None, compress(Codec.ZSTD, inner), attributes=ZSTD),
        "codec 5": message(magic, None, b"x", attributes=5),
        "unused attribute bits": message(magic, b"key", b"value", attributes=0xF0),
        "log append time": message(magic, b"key", b"value", attributes=0x08),
        "wrapper, nothing wrong": good,
        "wrapper, with a key": wrapper(magic, _two(magic, relative), offset=9, key=b"key"),
        "wrapper, null value": message(magic, None, None, offset=9, attributes=GZIP),
        "wrapper, empty value": message(magic, None, b"", offset=9, attributes=GZIP),
        "wrapper, nothing inside": wrapper(magic, b"", offset=9),
        "wrapper, garbage": message(magic, None, b"garbage", offset=9, attributes=GZIP),
        "wrapper, offset 0": wrapper(magic, inner, offset=0),
        "wrapper, offset smaller than the last inside": wrapper(magic, _two(magic, 5), offset=3),
        "wrapper, offset larger than the last inside": wrapper(magic, _two(magic, 5), offset=30),
        "wrapper, offsets inside fall": wrapper(magic, message(magic, b"a", b"1", offset=3) + _two(magic), offset=9),
        "wrapper, half a message inside": wrapper(magic, inner[:-3], offset=9),
        "wrapper, a few bytes behind the messages inside": wrapper(magic, inner + b"tail", offset=9),
        "wrapper, wrong checksum inside": wrapper(magic, _patched(inner, len(inner) - 1, b"X"), offset=9),
        "wrapper, length inside too small": wrapper(
            magic, _patched(inner, layout.at.length, struct.pack(">i", 13)), offset=9
        ),
        "wrapper, length inside negative": wrapper(
            magic, _patched(inner, layout.at.length, struct.pack(">i", -1)), offset=9
        ),
        "wrapper, the other magic inside": wrapper(magic, _two(1 - magic), offset=9),
        "wrapper, magic 2 inside": wrapper(magic, record_batch.encode([Record(value=b"v", timestamp_ms=1)]), offset=9),
        "wrapper in a wrapper": wrapper(magic, wrapper(magic, inner), offset=9),
        "wrapper, bytes behind the value inside": wrapper(magic, message(magic, b"k", b"v", tail=b"tail"), offset=9),
        "wrapper, bytes behind the value": message(
            magic, None, compress(Codec.GZIP, inner), offset=9, attributes=GZIP, tail=b"tail"
        ),
        "wrapper, raw snappy": message(
            magic, None, bytes(cramjam.snappy.compress_raw(inner)), offset=9, attributes=SNAPPY
        ),
        "wrapper, lz4 with the other header checksum": message(
            magic, None, compress(Codec.LZ4, inner, magic=1 - magic), offset=9, attributes=LZ4
        ),
    }
    return {f"v{magic}: {name}": data for name, data in cases.items()}


def hostile_batches() -> dict[str, bytes]:
    v2 = _v2_batches() | _v2_records() | _v2_codecs()
    return {f"v2: {name}": data for name, data in v2.items()} | _messages(0) | _messages(1)
