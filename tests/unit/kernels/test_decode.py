"""The v2 decode kernel, called directly: its checks one by one, its limits, and how it continues after a stop.

That it agrees with the reference on any bytes: `test_kernel_twins`.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from duralog.errors import Fault
from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.format.varint import encode_varint, encode_varlong
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns
from duralog.kernels.decode import CHECK, SLICE, WHOLE, decode_batches


class Decoded(NamedTuple):
    fault: Fault
    batch: int
    record: int
    position: int
    columns: RecordColumns
    batch_row: list[int]


def decode(
    contents: list[bytes],
    counts: list[int],
    *,
    mode: int = WHOLE,
    room: int = 100,
    max_bytes: int = 1 << 20,
    at: tuple[int, int, int] = (0, 0, 0),
    **header: int,
) -> Decoded:
    """Decode batches whose records are `contents`. They lie one after the other, with bytes before and behind."""
    data = np.frombuffer(b"\x7f" * 3 + b"".join(contents) + b"\x01" * 40, np.uint8)
    ends = 3 + np.cumsum([len(content) for content in contents], dtype=np.int64)
    begins = ends - np.array([len(content) for content in contents], np.int64)
    batches = np.zeros(len(contents), BATCH_DTYPE)
    batches["record_count"] = counts
    for name, value in header.items():
        batches[name] = value
    columns, batch_row = RecordColumns.empty(room), np.empty(room, np.int32)
    rows = np.arange(len(contents), dtype=np.intp)
    fault, batch, record, position, filled = decode_batches(
        data, begins, ends, batches, rows, mode, max_bytes, *at, batch_row, *columns.arrays
    )
    return Decoded(Fault(fault), batch, record, position, columns.first(filled), batch_row[:filled].tolist())


def record(
    *,
    attributes: bytes = b"\0",
    timestamp_delta: bytes = encode_varlong(0),
    offset_delta: bytes = encode_varint(0),
    key: bytes = encode_varint(-1),
    value: bytes = encode_varint(-1),
    headers: bytes = encode_varint(0),
    length: bytes | None = None,
) -> bytes:
    body = attributes + timestamp_delta + offset_delta + key + value + headers
    return (encode_varint(len(body)) if length is None else length) + body


def field(content: bytes) -> bytes:
    return encode_varint(len(content)) + content


LARGEST = encode_varint(2**31 - 1)
SMALLEST = encode_varint(-(2**31))
ENDLESS = b"\x80" * 5
GOOD = record(key=field(b"key"), value=field(b"value"))


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (b"\x80" * 6 + b"\0", Fault.VARINT),
        (b"\x80" * 4, Fault.VARINT),
        (record(length=LARGEST), Fault.RECORD_LENGTH),
        (record(length=SMALLEST), Fault.RECORD_LENGTH),
        (record(length=encode_varint(7)), Fault.RECORD_LENGTH),
        (encode_varint(0) + bytes(6), Fault.FIELD_LENGTH),
        (record(timestamp_delta=b"\x80" * 10 + b"\0"), Fault.VARINT),
        (record(length=encode_varint(1), timestamp_delta=b"\0"), Fault.VARINT),
        (record(offset_delta=ENDLESS), Fault.VARINT),
        (record(length=encode_varint(2)), Fault.VARINT),
        (record(key=ENDLESS), Fault.VARINT),
        (record(key=LARGEST), Fault.FIELD_LENGTH),
        (record(key=encode_varint(3)), Fault.FIELD_LENGTH),
        (record(key=encode_varint(2)), Fault.VARINT),
        (record(value=ENDLESS), Fault.VARINT),
        (record(value=LARGEST), Fault.FIELD_LENGTH),
        (record(value=encode_varint(2)), Fault.FIELD_LENGTH),
        (record(value=encode_varint(1)), Fault.VARINT),
        (record(headers=ENDLESS), Fault.VARINT),
        (record(headers=encode_varint(-1)), Fault.HEADER_COUNT),
        (record(headers=SMALLEST), Fault.HEADER_COUNT),
        (record(headers=LARGEST), Fault.HEADER_COUNT),
        (record(headers=encode_varint(1)), Fault.HEADER_COUNT),
        (record(headers=encode_varint(1) + ENDLESS), Fault.VARINT),
        (record(headers=encode_varint(1) + encode_varint(-1) + bytes(3)), Fault.HEADER_KEY),
        (record(headers=encode_varint(1) + LARGEST), Fault.FIELD_LENGTH),
        (record(headers=encode_varint(1) + field(b"h")), Fault.VARINT),
        (record(headers=encode_varint(1) + field(b"h") + LARGEST), Fault.FIELD_LENGTH),
        (record(headers=encode_varint(2) + field(b"h") + field(b"x")), Fault.VARINT),
        (record(headers=encode_varint(0) + b"\0"), Fault.RECORD_NOT_CONSUMED),
    ],
)
def test_a_bad_record(bad: bytes, expected: Fault) -> None:
    """The fault is at its first byte, and nothing of its batch is kept; the batch before it is."""
    decoded = decode([GOOD, GOOD + bad], [1, 2])
    assert (decoded.fault, decoded.batch, decoded.record) == (expected, 1, 1)
    assert decoded.position == 3 + 2 * len(GOOD)
    assert decoded.batch_row == [0]
    checked = decode([GOOD, GOOD + bad], [1, 2], mode=CHECK, room=0)
    assert checked[:4] == decoded[:4]


@pytest.mark.parametrize("count", [-1, -(2**31), 2**31 - 1, 3])
def test_a_count_that_the_bytes_cannot_hold(count: int) -> None:
    content = record() * 2 + bytes(4)
    decoded = decode([GOOD, content], [1, count])
    assert (decoded.fault, decoded.batch, decoded.position) == (Fault.RECORD_COUNT, 1, 3 + len(GOOD))
    assert decoded.batch_row == [0]


def test_bytes_after_the_last_record() -> None:
    decoded = decode([GOOD * 2], [1])
    assert (decoded.fault, decoded.position) == (Fault.TRAILING_BYTES, 3 + len(GOOD))
    assert len(decoded.columns) == 0


def test_columns() -> None:
    headers = encode_varint(2) + field(b"h") + field(b"x") + field(b"") + encode_varint(-7)
    content = record(
        timestamp_delta=encode_varlong(-5),
        offset_delta=encode_varint(70_000),
        key=encode_varint(-3),
        value=field(bytes(300)),
        headers=headers,
    )
    decoded = decode([content], [1], base_offset=10, base_timestamp=1000)
    assert decoded.fault is Fault.NONE
    end = 3 + len(content)
    columns = decoded.columns
    assert columns.offset.tolist() == [70_010]
    assert columns.timestamp.tolist() == [995]
    assert columns.key_length.tolist() == [-1]
    assert columns.value_length.tolist() == [300]
    assert columns.value_position.tolist() == [end - len(headers) - 300]
    assert columns.header_count.tolist() == [2]
    assert columns.headers_position.tolist() == [end - len(headers) + 1]


def test_sums_wrap_as_in_java() -> None:
    content = record(timestamp_delta=encode_varlong(2**63 - 1), offset_delta=encode_varint(2**31 - 1))
    decoded = decode([content], [1], base_offset=2**63 - 1, base_timestamp=2)
    assert decoded.columns.offset.tolist() == [2**63 - 1 + 2**31 - 1 - 2**64]
    assert decoded.columns.timestamp.tolist() == [-(2**63) + 1]


def test_integers_may_be_longer_than_needed_and_their_surplus_bits_are_dropped() -> None:
    content = record(offset_delta=b"\x8a\x80\x80\x80\x70", timestamp_delta=b"\x8a" + b"\x80" * 8 + b"\x7e")
    decoded = decode([content], [1])
    assert decoded.columns.offset.tolist() == [5]
    assert decoded.columns.timestamp.tolist() == [5]


def test_log_append_time_is_the_batches() -> None:
    content = record(timestamp_delta=encode_varlong(9))
    decoded = decode([content], [1], base_timestamp=1000, max_timestamp=7, attributes=LOG_APPEND_TIME_BIT)
    assert decoded.columns.timestamp.tolist() == [7]


def test_whole_batches_only() -> None:
    contents, counts = [GOOD * 2, b"", GOOD * 3, GOOD], [2, 0, 3, 1]
    first = decode(contents, counts, room=4)
    assert (first.fault, first.batch, first.record, first.batch_row) == (Fault.NONE, 2, 0, [0, 0])
    second = decode(contents, counts, room=4, at=(2, 0, 0))
    assert (second.fault, second.batch, second.batch_row) == (Fault.NONE, 4, [2, 2, 2, 3])


@pytest.mark.parametrize(("room", "max_bytes"), [(2, 1000), (0, 1000), (100, 3 * len(GOOD) - 1)])
def test_a_batch_that_does_not_fit_alone(room: int, max_bytes: int) -> None:
    decoded = decode([b"", GOOD * 3], [0, 3], room=room, max_bytes=max_bytes)
    assert (decoded.fault, decoded.batch, decoded.batch_row) == (Fault.NONE, 1, [])


@pytest.mark.parametrize(("room", "max_bytes", "sizes"), [(2, 1000, [2, 2, 1]), (9, 30, [2, 2, 1]), (9, 1, [1] * 5)])
def test_slices_of_a_large_batch(room: int, max_bytes: int, sizes: list[int]) -> None:
    content = b"".join(record(offset_delta=encode_varint(n), value=field(b"value")) for n in range(5))
    assert len(content) == 5 * 12
    at = (0, 0, 0)
    offsets = []
    for size in sizes:
        decoded = decode([content], [5], mode=SLICE, room=room, max_bytes=max_bytes, at=at)
        assert decoded.fault is Fault.NONE
        assert len(decoded.columns) == size
        offsets += decoded.columns.offset.tolist()
        at = decoded[1:4]
    assert at[0] == 1
    assert offsets == [0, 1, 2, 3, 4]


GUARDED = """
import ctypes, mmap
import numpy as np
from duralog.format import record_batch
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns
from duralog.kernels.decode import WHOLE, decode_batches

pages = 4 * mmap.PAGESIZE
memory = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
batches, rows = np.zeros(1, BATCH_DTYPE), np.zeros(1, np.intp)
sound = refused = 0
for records in (1, 2, 3):
    batches["record_count"] = records
    columns, batch_row = RecordColumns.empty(records), np.empty(records, np.int32)
    for size in (None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 63, 64, 65, 300):
        field = None if size is None else b"x" * size
        for record in (Record(key=field), Record(value=field), Record(key=field, value=field, headers=[("h", field)])):
            content = record_batch.encode([record] * records)[BATCH_V2.size:]
            data = memory[pages - len(content) : pages]  # The byte after it must not be touched.
            for at in range(len(content)):
                for byte in (content[at], 0x00, 0x7E, 0x7F, 0x80, 0xFE, 0xFF):
                    data[:] = np.frombuffer(content, np.uint8)
                    data[at] = byte
                    begins, ends = np.zeros(1, np.int64), np.array([len(content)], np.int64)
                    fault, *_ = decode_batches(
                        data, begins, ends, batches, rows, WHOLE, 1 << 20, 0, 0, 0, batch_row, *columns.arrays
                    )
                    sound += fault == 0
                    refused += fault != 0
assert sound > 1000 and refused > 1000
print("inside")
"""


@pytest.mark.slow
def test_nothing_is_read_past_the_end() -> None:
    """In a process of its own: a wrong access ends it."""
    finished = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "inside\n"), finished.stderr
