"""The kernel that looks at a batch before it is appended: its result for good ones, and each of its checks.

That it agrees with the reference on any bytes: `test_validation_twins`.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from duralog.errors import Fault
from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.message_set import encode as encode_message
from duralog.format.record import Record, TimestampType
from duralog.format.varint import encode_varint, encode_varlong
from duralog.kernels.validate import (
    CANONICAL,
    CONSECUTIVE,
    WITHOUT_KEY,
    inspect_batch,
    inspect_records,
)


def inspect(data: bytes, position: int = 0) -> tuple[int, ...]:
    return tuple(inspect_batch(np.frombuffer(data, np.uint8), position))


def sealed(batch: bytes) -> bytes:
    """The batch with the checksum that its bytes have."""
    made = bytearray(batch)
    struct.pack_into(">I", made, BATCH_V2.at.crc, crc32c(made[BATCH_V2.at.attributes :]))
    return bytes(made)


def batch_of(content: bytes, count: int) -> bytes:
    """A plain batch around these bytes of records."""
    header = bytearray(record_batch.encode([Record(timestamp_ms=5)])[: BATCH_V2.size])
    struct.pack_into(">i", header, BATCH_V2.at.length, BATCH_V2.size - 12 + len(content))
    struct.pack_into(">i", header, BATCH_V2.at.record_count, count)
    return sealed(bytes(header) + content)


def record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


GOOD = record(b"\0\0\0\1\1\0")
"""No attributes, deltas 0, no key, no value, no headers."""

TIMES = [300, -1, 200, 900, 400]


def test_it_returns_the_facts_of_a_plain_batch() -> None:
    batch = record_batch.encode([Record(key=b"k", timestamp_ms=time) for time in TIMES])
    fault, _, smallest, largest, traits, size, checksum = inspect(b"x" * 7 + batch + b"y" * 9, 7)
    assert fault == Fault.NONE
    assert (smallest, largest) == (200, 900)
    assert traits == CONSECUTIVE | CANONICAL
    assert size == len(batch)
    assert checksum == crc32c(batch[BATCH_V2.at.attributes :])


@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_a_missing_key_is_seen_wherever_it_is(key: bytes | None) -> None:
    for place in range(3):
        records = [Record(key=key if index == place else b"k", timestamp_ms=1) for index in range(3)]
        assert bool(inspect(record_batch.encode(records))[4] & WITHOUT_KEY) == (key is None)


def test_any_negative_key_length_is_no_key() -> None:
    content = record(b"\0\0\0" + encode_varint(-5) + b"\1\0")
    assert inspect(batch_of(content, 1))[4] & WITHOUT_KEY


def test_missing_timestamps_are_shown_as_none() -> None:
    assert inspect(record_batch.encode([Record(), Record()]))[2:4] == (-1, -1)


@pytest.mark.parametrize(
    ("times", "facts"),
    [
        ([2**63 - 1], (2**63 - 1, 2**63 - 1)),
        ([-5, -5], (-5, -1)),
        ([-1, -5], (-5, -1)),
        ([-(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        ([0], (0, 0)),
    ],
)
def test_the_edges_of_time(times: list[int], facts: tuple[int, int]) -> None:
    """Timestamps that no encoder writes, but any client may send."""
    content = b"".join(
        record(b"\0" + encode_varlong(time) + encode_varint(n) + b"\1\1\0") for n, time in enumerate(times)
    )
    assert inspect_records(np.frombuffer(content, np.uint8), len(times), 0, -1)[2:4] == facts


def test_log_append_time_is_the_time_of_all_records() -> None:
    batch = record_batch.encode(
        [Record(timestamp_ms=time) for time in TIMES],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=7000,
    )
    assert inspect(batch)[2:4] == (7000, 7000)


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        (b"\0\0\2\1\1\0", CONSECUTIVE),
        (b"\0\0\1\1\1\0", CONSECUTIVE),
        (b"\0\2\0\1\1\0", CANONICAL),
        (b"\7\0\0\1\1\0", CANONICAL),
    ],
    ids=["offset +1", "offset -1", "first timestamp", "attributes"],
)
def test_what_a_new_batch_would_not_have_is_a_trait(body: bytes, lost: int) -> None:
    _, _, _, _, traits, _, _ = inspect(batch_of(record(body), 1))
    assert traits == (CONSECUTIVE | CANONICAL | WITHOUT_KEY) & ~lost


def test_only_the_first_timestamp_delta_counts() -> None:
    content = GOOD + record(b"\0\6\2\1\1\0")
    assert inspect(batch_of(content, 2))[4] == CONSECUTIVE | CANONICAL | WITHOUT_KEY


def test_the_records_of_a_compressed_batch_are_left_alone() -> None:
    batch = record_batch.encode([Record(key=b"k", timestamp_ms=4)], codec=Codec.ZSTD)
    assert inspect(batch)[0] == Fault.NONE
    assert inspect(batch)[5] == len(batch)
    assert inspect(sealed(batch[:-3] + b"\xff\xff\xff"))[0] == Fault.NONE


def test_frames_and_checksums_are_checked_first() -> None:
    batch = record_batch.encode([Record(value=b"v", timestamp_ms=1)])
    assert inspect(batch[:-1])[:2] == (Fault.PARTIAL_BATCH, 0)
    assert inspect(batch[:16])[0] == Fault.PARTIAL_BATCH
    assert inspect(b"")[0] == Fault.PARTIAL_BATCH
    assert inspect(batch[:8] + struct.pack(">i", 13) + batch[12:])[0] == Fault.BATCH_LENGTH
    assert inspect(batch[:8] + struct.pack(">i", 40) + batch[12:])[0] == Fault.BATCH_LENGTH
    assert inspect(batch[:16] + b"\3" + batch[17:])[0] == Fault.UNKNOWN_MAGIC
    old = encode_message([Record(value=b"v", timestamp_ms=1)], magic=1, base_offset=0)
    assert inspect(old)[0] == Fault.UNKNOWN_MAGIC
    damaged = batch[:-1] + bytes([batch[-1] ^ 1])
    fault, _, _, _, _, size, checksum = inspect(damaged)
    assert (fault, size) == (Fault.CRC_MISMATCH, len(batch))
    assert checksum == crc32c(damaged[BATCH_V2.at.attributes :])


@pytest.mark.parametrize(
    ("content", "count", "fault", "place"),
    [
        (GOOD, -1, Fault.RECORD_COUNT, 0),
        (GOOD, 2, Fault.RECORD_COUNT, 0),
        (GOOD + b"\x80" * 5 + GOOD, 2, Fault.VARINT, len(GOOD)),
        (GOOD + encode_varint(-1) + GOOD, 2, Fault.RECORD_LENGTH, len(GOOD)),
        (GOOD + encode_varint(7) + GOOD[1:], 2, Fault.RECORD_LENGTH, len(GOOD)),
        (GOOD + encode_varint(0) + GOOD, 2, Fault.FIELD_LENGTH, len(GOOD)),
        (record(b"\0" + b"\x80" * 10), 1, Fault.VARINT, 0),
        (record(b"\0\0" + b"\x80" * 6), 1, Fault.VARINT, 0),
        (record(b"\0\0\0" + b"\x80" * 6), 1, Fault.VARINT, 0),
        (record(b"\0\0\0\x0a\1\0\0"), 1, Fault.FIELD_LENGTH, 0),
        (record(b"\0\0\0\1\x80\x80"), 1, Fault.VARINT, 0),
        (record(b"\0\0\0\1\x0a\0\0"), 1, Fault.FIELD_LENGTH, 0),
        (record(b"\0\0\0\1\4ab"), 1, Fault.VARINT, 0),
        (record(b"\0\0\0\1\1\1\0"), 1, Fault.HEADER_COUNT, 0),
        (record(b"\0\0\0\1\1\4\0"), 1, Fault.HEADER_COUNT, 0),
        (record(b"\0\0\0\1\1\2\1\1"), 1, Fault.HEADER_KEY, 0),
        (record(b"\0\0\0\1\1\0\0"), 1, Fault.RECORD_NOT_CONSUMED, 0),
        (GOOD + GOOD, 1, Fault.TRAILING_BYTES, len(GOOD)),
    ],
)
def test_the_structure_of_records(content: bytes, count: int, fault: Fault, place: int) -> None:
    assert inspect(batch_of(content, count))[:2] == (fault, BATCH_V2.size + place)
    assert inspect_records(np.frombuffer(content, np.uint8), count, 0, -1)[:2] == (fault, place)
