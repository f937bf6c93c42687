"""The kernels for v0 and v1 messages, called directly. That they agree with the reference: `test_kernel_twins`."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from duralog.errors import Fault
from duralog.format import message_set
from duralog.format.checksum import crc32
from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns
from duralog.kernels.legacy import check_inner_messages, decode_inner_messages, decode_messages
from duralog.kernels.scan import scan_batches

RECORDS = [
    Record(key=b"k1", value=b"v1", timestamp_ms=1000),
    Record(key=None, value=b"v2", timestamp_ms=1001),
    Record(key=b"", value=None, timestamp_ms=1002),
]


def message(magic: int, fields: bytes, *, offset: int = 0, attributes: int = 0) -> bytes:
    """A message whose length and checksum are right, whatever its fields are."""
    checked = bytes([magic, attributes]) + bytes(8 * magic) + fields
    return struct.pack(">qiI", offset, 4 + len(checked), crc32(checked)) + checked


def lengths(key: int, value: int) -> bytes:
    return struct.pack(">ii", key, value)


def scanned(data: bytes) -> np.ndarray:
    batches = np.zeros(10, BATCH_DTYPE)
    count, _, _ = scan_batches(np.frombuffer(data, np.uint8), 0, True, batches)
    return batches[:count]


def decode_plain(data: bytes, *, first: int = 0, room: int = 10, max_bytes: int = 1000):
    batches = scanned(data)
    columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
    rows = np.arange(len(batches), dtype=np.intp)
    begins = batches["position"].copy()
    fault, next_message, filled = decode_messages(
        np.frombuffer(data, np.uint8), begins, batches, rows, max_bytes, first, batch_row, *columns.arrays
    )
    assert batch_row[:filled].tolist() == list(range(first, first + filled))
    return Fault(fault), next_message, columns.first(filled)


def content_of(data: bytes, columns: RecordColumns) -> list[tuple[bytes | None, bytes | None]]:
    def fields(positions, sizes):
        return [data[p : p + n] if n >= 0 else None for p, n in zip(positions, sizes, strict=True)]

    keys = fields(columns.key_position, columns.key_length)
    return list(zip(keys, fields(columns.value_position, columns.value_length), strict=True))


@pytest.mark.parametrize(("magic", "timestamps"), [(0, [-1, -1, -1]), (1, [1000, 1001, 1002])])
def test_plain_messages(magic: int, timestamps: list[int]) -> None:
    data = message_set.encode(RECORDS, magic=magic, base_offset=7)
    fault, next_message, columns = decode_plain(data)
    assert (fault, next_message) == (Fault.NONE, 3)
    assert columns.offset.tolist() == [7, 8, 9]
    assert columns.timestamp.tolist() == timestamps
    assert content_of(data, columns) == [(b"k1", b"v1"), (None, b"v2"), (b"", None)]
    assert columns.header_count.tolist() == [0, 0, 0]


def test_plain_messages_go_on_where_the_rows_or_the_bytes_ended() -> None:
    data = message_set.encode(RECORDS, magic=0)
    assert [decode_plain(data, room=2)[1], decode_plain(data, room=2, first=2)[1]] == [2, 3]
    assert decode_plain(data, max_bytes=60)[1] == 2
    assert decode_plain(data, max_bytes=1)[1] == 1, "one message that is larger is taken alone"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (lengths(1, 0), Fault.FIELD_LENGTH),
        (lengths(2**31 - 1, 0), Fault.FIELD_LENGTH),
        (lengths(-1, 1), Fault.FIELD_LENGTH),
        (lengths(-1, 2**31 - 1), Fault.FIELD_LENGTH),
        (lengths(0, 0) + b"x", Fault.RECORD_NOT_CONSUMED),
        (lengths(-1, -1) + b"x", Fault.RECORD_NOT_CONSUMED),
        (lengths(-5, -(2**31)), Fault.NONE),
    ],
)
def test_fields_of_a_message(magic: int, fields: bytes, expected: Fault) -> None:
    good = message_set.encode(RECORDS[:1], magic=magic)
    fault, next_message, columns = decode_plain(good + message(magic, fields))
    assert fault is expected
    assert next_message == (2 if expected is Fault.NONE else 1)
    assert columns.key_length.tolist() == ([2, -1] if expected is Fault.NONE else [2])


def wrappers(contents: list[bytes], *, magic: int, offsets: list[int], attributes: int = 1, timestamp: int = 5000):
    """What a scan and a decompression would hand on: the data, where each content lies, the rows."""
    batches = np.zeros(len(contents), BATCH_DTYPE)
    batches["magic"] = magic
    batches["last_offset"] = offsets
    batches["attributes"] = attributes
    batches["max_timestamp"] = timestamp
    ends = np.cumsum([len(content) for content in contents], dtype=np.int64)
    begins = ends - np.array([len(content) for content in contents], np.int64)
    data = np.frombuffer(b"".join(contents), np.uint8)
    return data, begins, ends, batches, np.arange(len(contents), dtype=np.intp)


def check(contents: list[bytes], *, magic: int, offsets: list[int]):
    given = wrappers(contents, magic=magic, offsets=offsets)
    base_offsets = np.zeros(len(contents), np.int64)
    fault, wrapper, position = check_inner_messages(*given, 0, base_offsets)
    return Fault(fault), wrapper, position, base_offsets.tolist()


def inner(magic: int, first_offset: int = 0) -> bytes:
    return message_set.encode(RECORDS, magic=magic, base_offset=first_offset)


@pytest.mark.parametrize(
    ("magic", "first_inner", "wrapper_offset", "base_offset"),
    [
        (0, 50, 52, 0),  # absolute
        (0, 50, 9, 0),  # v0 wrappers are not asked for their offset
        (1, 0, 102, 100),
        (1, 0, 2, 0),
        (1, 0, 0, 0),  # left unset by an old producer
        (1, 4, 106, 100),  # a compacted wrapper
    ],
)
def test_what_inner_offsets_count_from(magic: int, first_inner: int, wrapper_offset: int, base_offset: int) -> None:
    fault, wrapper, _, base_offsets = check([inner(magic, first_inner)], magic=magic, offsets=[wrapper_offset])
    assert (fault, wrapper, base_offsets) == (Fault.NONE, 1, [base_offset])


@pytest.mark.parametrize("magic", [0, 1])
def test_inner_faults(magic: int) -> None:
    good = inner(magic)
    plain = message(magic, lengths(-1, -1))
    broken = bytearray(plain)
    broken[12] ^= 1
    for bad, expected in [
        (plain[:-1], Fault.RECORD_LENGTH),
        (plain[:16], Fault.RECORD_LENGTH),
        (struct.pack(">qi", 0, 13) + bytes(20), Fault.BATCH_LENGTH),
        (struct.pack(">qi", 0, -1) + bytes(20), Fault.BATCH_LENGTH),
        (message(3, lengths(-1, -1)), Fault.UNKNOWN_MAGIC),
        (message(1 - magic, lengths(-1, -1)), Fault.INNER_MAGIC),
        (message(magic, lengths(-1, -1), attributes=2), Fault.NESTED_COMPRESSION),
        (bytes(broken), Fault.CRC_MISMATCH),
        (message(magic, lengths(9, -1)), Fault.FIELD_LENGTH),
        (message(magic, lengths(-1, -1) + b"x"), Fault.RECORD_NOT_CONSUMED),
    ]:
        fault, wrapper, position, _ = check([good, good + bad], magic=magic, offsets=[9, 9])
        assert (fault, wrapper, position) == (expected, 1, 2 * len(good)), expected


def test_an_empty_wrapper() -> None:
    assert check([inner(1), b""], magic=1, offsets=[2, 2])[:3] == (Fault.RECORD_COUNT, 1, len(inner(1)))


def test_a_wrapper_offset_before_its_last_inner_one() -> None:
    fault, wrapper, position, _ = check([inner(1)], magic=1, offsets=[1])
    last = len(inner(1)) - len(message_set.encode(RECORDS[2:], magic=1))
    assert (fault, wrapper, position) == (Fault.INNER_OFFSET, 0, last)


@pytest.mark.parametrize(
    ("magic", "attributes", "timestamps"),
    [(0, 1, [-1] * 6), (1, 1, [1000, 1001, 1002] * 2), (1, 1 | LOG_APPEND_TIME_BIT, [5000] * 6)],
)
@pytest.mark.parametrize(("room", "max_bytes"), [(100, 1000), (2, 1000), (100, 1), (100, 80)])
def test_inner_messages(magic: int, attributes: int, timestamps: list[int], room: int, max_bytes: int) -> None:
    """Decoded in one go or in several, it is all the same."""
    contents = [inner(magic), inner(magic)]
    given = wrappers(contents, magic=magic, offsets=[12, 22], attributes=attributes)
    data, begins, *_ = given
    bases = np.array([10, 20], np.int64)
    wrapper, position = 0, begins[0]
    offsets, seen_timestamps, rows, content = [], [], [], []
    while wrapper < 2:
        columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
        wrapper, position, filled = decode_inner_messages(
            *given, bases, max_bytes, wrapper, position, batch_row, *columns.arrays
        )
        assert 0 < filled <= room
        columns = columns.first(filled)
        offsets += columns.offset.tolist()
        seen_timestamps += columns.timestamp.tolist()
        rows += batch_row[:filled].tolist()
        content += content_of(data.tobytes(), columns)
    assert offsets == [10, 11, 12, 20, 21, 22]
    assert seen_timestamps == timestamps
    assert rows == [0, 0, 0, 1, 1, 1]
    assert content == [(b"k1", b"v1"), (None, b"v2"), (b"", None)] * 2
