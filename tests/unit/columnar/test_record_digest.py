"""The digest of records: as its definition says, independent of batches, and another one for every change."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from random import Random

import pytest

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.columnar.record_digest import RecordDigest
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record

RECORDS = [
    Record(key=b"a", value=b"1", timestamp_ms=1_000, offset=5),
    Record(key=None, value=b"", timestamp_ms=-1, offset=6),
    Record(key=b"", value=None, timestamp_ms=3_000, offset=9),
    Record(key=Random(1).randbytes(200), value=Random(2).randbytes(5000), timestamp_ms=2_000, offset=10),
]
WITH_HEADERS = [
    Record(key=b"a", value=b"1", timestamp_ms=1_000, offset=5, headers=[("h", b"x"), ("trace", None)]),
    Record(key=b"b", value=b"2", timestamp_ms=1_000, offset=6),
    Record(key=None, value=None, timestamp_ms=1_000, offset=7, headers=[("h", b"")]),
]


def digest_of(data: bytes) -> RecordDigest:
    digest = RecordDigest()
    for piece in read_pieces(MemorySource(data)):
        for decoded in piece.decode():
            digest.add(decoded)
    return digest


def by_definition(records: list[Record]) -> int:
    total = 0
    for record in records:
        presence = (record.key is not None) + 2 * (record.value is not None)
        fields = hashlib.md5(record.key or b"").digest() + hashlib.md5(record.value or b"").digest()
        head = struct.pack("<qqB", record.offset, record.timestamp_ms, presence)
        if record.headers:
            fields += hashlib.md5(b"".join(map(header_bytes, record.headers))).digest()
        total += int.from_bytes(hashlib.md5(head + fields).digest(), "little")
    return total % 2**128


def header_bytes(header: tuple[str, bytes | None]) -> bytes:
    """Lengths as zigzag varints of one byte."""
    name, value = header
    length = b"\x01" if value is None else bytes([2 * len(value)])
    return bytes([2 * len(name)]) + name.encode() + length + (value or b"")


def encoded(records: list[Record]) -> bytes:
    return record_batch.encode(records, base_offset=records[0].offset)


def test_it_is_what_its_definition_says() -> None:
    digest = digest_of(encoded(RECORDS))
    assert (digest.records, digest.total) == (4, by_definition(RECORDS))
    assert str(digest) == f"{by_definition(RECORDS):032x}"


def test_headers_count() -> None:
    assert digest_of(encoded(WITH_HEADERS)).total == by_definition(WITH_HEADERS)
    packed = record_batch.encode(WITH_HEADERS, base_offset=5, codec=Codec.ZSTD)
    assert digest_of(packed) == digest_of(encoded(WITH_HEADERS))
    other = [WITH_HEADERS[0], WITH_HEADERS[1], replace(WITH_HEADERS[2], headers=[("h", None)])]
    assert digest_of(encoded(other)) != digest_of(encoded(WITH_HEADERS))


def test_batches_and_formats_make_no_difference() -> None:
    one_by_one = b"".join(encoded([record]) for record in RECORDS)
    packed = record_batch.encode(RECORDS, base_offset=5, codec=Codec.ZSTD)
    v1 = message_set.encode(RECORDS, magic=1, base_offset=5)
    wrapped = message_set.encode(RECORDS, magic=1, base_offset=5, codec=Codec.GZIP)
    assert len({digest_of(data) for data in (encoded(RECORDS), one_by_one, packed, v1, wrapped)}) == 1


def test_parts_add_up() -> None:
    whole, first, rest = digest_of(encoded(RECORDS)), digest_of(encoded(RECORDS[:1])), digest_of(encoded(RECORDS[1:]))
    first.include(rest)
    assert first == whole


@pytest.mark.parametrize(
    "changed",
    [
        Record(key=b"a", value=b"1", timestamp_ms=1_000, offset=4),
        Record(key=b"a", value=b"1", timestamp_ms=1_001, offset=5),
        Record(key=b"b", value=b"1", timestamp_ms=1_000, offset=5),
        Record(key=b"a", value=b"2", timestamp_ms=1_000, offset=5),
        Record(key=b"1", value=b"a", timestamp_ms=1_000, offset=5),
        Record(key=b"a1", value=b"", timestamp_ms=1_000, offset=5),
        Record(key=b"a", value=None, timestamp_ms=1_000, offset=5),
    ],
)
def test_any_change_is_seen(changed: Record) -> None:
    assert digest_of(encoded([changed, *RECORDS[1:]])) != digest_of(encoded(RECORDS))


def test_null_is_not_empty() -> None:
    null = Record(key=None, value=None, timestamp_ms=1, offset=0)
    empty = Record(key=b"", value=b"", timestamp_ms=1, offset=0)
    assert digest_of(encoded([null])) != digest_of(encoded([empty]))


def test_values_that_change_places_are_seen() -> None:
    first, second = RECORDS[0], Record(key=b"b", value=b"2", timestamp_ms=1_000, offset=6)
    swapped = [
        Record(key=b"b", value=b"2", timestamp_ms=1_000, offset=5),
        Record(key=b"a", value=b"1", timestamp_ms=1_000, offset=6),
    ]
    assert digest_of(encoded([first, second])) != digest_of(encoded(swapped))
