"""The encoding kernels and the primitives they write with: exact bytes, exact sizes, nothing outside the arrays."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.format.varint import encode_varint, encode_varlong
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.encode import (
    HEADER_BYTES,
    MAX_RECORDS_BYTES,
    BinaryColumn,
    encode_headers,
    plan_batches,
    seal_batches,
    write_batches,
)
from duralog.kernels.writing import SLACK, copy_bytes, put_varint, varint_size

INT32_MAX = 2**31 - 1
UNTOUCHED = 0xAA


def frozen(array):
    array.flags.writeable = False
    return array


def int64s(*values):
    return frozen(np.array(values, np.int64))


def column(*values, first_bit=0):
    """A column whose bitmap starts at `first_bit`, with bits before and after that must not matter."""
    offsets = np.cumsum([0, *(len(value or b"") for value in values)])
    bits = [1] * first_bit + [value is not None for value in values] + [0] * 9
    validity = np.packbits(np.array(bits, np.uint8), bitorder="little") if None in values else np.empty(0, np.uint8)
    data = np.frombuffer(b"".join(value or b"" for value in values), np.uint8)
    return BinaryColumn(frozen(offsets.astype(np.int64)), data, frozen(validity), first_bit)


def no_headers(rows):
    return column(*[b"\x00"] * rows)


def plan(offsets, timestamps, keys, values, *, batch_bytes=16384, batch_records=INT32_MAX, headers=None):
    columns = (offsets, timestamps, keys, values, no_headers(len(offsets)) if headers is None else headers)
    body_size = np.full(len(offsets), -1, np.int32)
    first_row = np.full(len(offsets) + 1, -1, np.int64)
    result = plan_batches(*columns, batch_bytes, batch_records, body_size, first_row)
    return result, body_size, first_row[: result[0] + 1].tolist()


@pytest.mark.parametrize(
    "value", sorted({sign * (1 << bits) + near for bits in range(63) for sign in (1, -1) for near in (-1, 0, 1)})
)
def test_varints_are_those_of_the_format(value):
    expected = encode_varlong(value)
    out = np.full(16, UNTOUCHED, np.uint8)
    assert put_varint(out.ctypes.data, value) - out.ctypes.data == len(expected) == varint_size(value)
    assert out.tobytes() == expected + bytes([UNTOUCHED]) * (16 - len(expected))


def test_the_extremes_of_varlongs():
    for value in (-(2**63), 2**63 - 1):
        out = np.zeros(10, np.uint8)
        assert put_varint(out.ctypes.data, value) - out.ctypes.data == 10 == varint_size(value)
        assert out.tobytes() == encode_varlong(value)


@pytest.mark.parametrize("size", [*range(100), 511, 512, 513, 2000])
@pytest.mark.parametrize("readable_after", [0, 1, 31, 32, 33])
def test_copies_are_exact_and_touch_only_the_slack(size, readable_after):
    source = np.random.default_rng(size).integers(0, 256, 7 + size + readable_after, dtype=np.uint8)
    out = np.full(3 + size + SLACK + 8, UNTOUCHED, np.uint8)
    start = source.ctypes.data + 7
    end = copy_bytes(start, size, source.ctypes.data + len(source), out.ctypes.data + 3)
    assert end == out.ctypes.data + 3 + size
    assert out[3 : 3 + size].tobytes() == source[7 : 7 + size].tobytes()
    assert set(out[:3]) == set(out[3 + size + SLACK :]) == {UNTOUCHED}


def test_header_sections():
    key = column(b"a", b"", b"long key", b"x" * 70)
    value = column(b"1", None, b"", b"y" * 70, first_bit=5)
    out = np.full(1000, UNTOUCHED, np.uint8)
    sections = np.empty(5, np.int64)
    encode_headers(int64s(0, 1, 1, 3, 4), key, value, out, sections)
    expected = [
        b"\x02\x02a\x021",
        b"\x00",
        b"\x04" + b"\x00\x01" + b"\x10long key\x00",
        b"\x02" + encode_varint(70) + b"x" * 70 + encode_varint(70) + b"y" * 70,
    ]
    assert [out[a:b].tobytes() for a, b in pairwise(sections)] == expected


def test_a_batch_is_filled_to_the_byte():
    rows = 10
    record_bytes = 1 + 6 + 10  # its length; attributes, deltas, lengths, header count; the value
    values = column(*[b"0123456789"] * rows)
    arguments = (int64s(*range(rows)), int64s(*[0] * rows), column(*[None] * rows), values)
    for batch_bytes, expected in (
        (record_bytes * 5, [0, 5, 10]),
        (record_bytes * 5 - 1, [0, 4, 8, 10]),
        (record_bytes * 5 + 1, [0, 5, 10]),
        (record_bytes * 10, [0, 10]),
        (1, list(range(11))),
    ):
        (batches, total, refused), body_size, first_row = plan(*arguments, batch_bytes=batch_bytes)
        assert first_row == expected
        assert (batches, total, refused) == (len(expected) - 1, rows * record_bytes, -1)
        assert set(body_size) == {record_bytes - 1}


def test_a_batch_holds_no_more_records_than_asked():
    arguments = (int64s(*range(7)), int64s(*[0] * 7), column(*[b""] * 7), column(*[b""] * 7))
    assert plan(*arguments, batch_records=3)[2] == [0, 3, 6, 7]
    assert plan(*arguments, batch_records=1)[2] == list(range(8))


def test_a_new_batch_where_the_offset_delta_would_not_fit():
    offsets = int64s(5, 5 + INT32_MAX, 6 + INT32_MAX, 2**63 - 2, 2**63 - 1)
    _, body_size, first_row = plan(offsets, int64s(*[0] * 5), column(*[b""] * 5), column(*[b""] * 5))
    assert first_row == [0, 2, 3, 5]
    assert body_size.tolist() == [6, 6 + 4, 6, 6, 6]


def test_sizes_follow_the_timestamps_of_their_own_batch():
    timestamps = int64s(2**63 - 1, -1, -1, 0)
    _, body_size, first_row = plan(
        int64s(0, 1, 2, 3), timestamps, column(*[b""] * 4), column(*[b""] * 4), batch_records=2
    )
    assert first_row == [0, 2, 4]
    assert body_size.tolist() == [6, 6 + 9, 6, 6]


@pytest.mark.parametrize(("length", "accepted"), [(MAX_RECORDS_BYTES - 15, True), (MAX_RECORDS_BYTES - 14, False)])
def test_a_record_that_no_batch_can_hold_is_refused(length, accepted):
    """Only the offsets are real: planning does not look at the data."""
    value = BinaryColumn(int64s(0, 1, 1 + length), np.frombuffer(b"", np.uint8), np.frombuffer(b"", np.uint8), 0)
    result, body_size, _ = plan(int64s(0, 1), int64s(0, 0), column(None, None), value)
    assert result == ((2, 8 + MAX_RECORDS_BYTES, -1) if accepted else (0, 0, 1))
    if accepted:
        assert body_size[1] == MAX_RECORDS_BYTES - 5


def test_lengths_whose_sum_leaves_64_bits_are_refused():
    value = BinaryColumn(int64s(0, 2**62), np.frombuffer(b"", np.uint8), np.frombuffer(b"", np.uint8), 0)
    assert plan(int64s(0), int64s(0), value, value)[0] == (0, 0, 0)


def write(columns, *, sealed=True, attributes=0, batch_records=INT32_MAX, max_timestamp=0):
    (count, total, _), body_size, _ = plan(*columns, batch_records=batch_records)
    first_row = np.array([*range(0, len(columns[0]), min(batch_records, len(columns[0]))), len(columns[0])], np.int64)
    batches = np.zeros(count, BATCH_DTYPE)
    batches["magic"] = 2
    batches["attributes"] = attributes
    batches["max_timestamp"] = max_timestamp
    size = total + HEADER_BYTES * count
    out = np.full(size + SLACK + 16, UNTOUCHED, np.uint8)
    arguments = (*columns, no_headers(len(columns[0])), body_size, first_row, batches, 0, count, sealed, out)
    write_batches(*arguments)
    assert set(out[size + SLACK :]) == {UNTOUCHED}
    return out[:size], batches


def small_columns(rows=5):
    keys = column(*[None if row % 3 == 0 else b"k" * row for row in range(rows)], first_bit=3)
    return (
        int64s(*range(10, 10 + rows)),
        int64s(*range(100, 100 + rows)),
        keys,
        column(*[b"v" * row for row in range(rows)]),
    )


def test_unsealed_batches_leave_the_headers_alone():
    sealed, sealed_rows = write(small_columns(), batch_records=2)
    unsealed, rows = write(small_columns(), batch_records=2, sealed=False)
    assert rows["size"].tolist() == sealed_rows["size"].tolist()
    for row in rows:
        begin, records, end = row["position"], row["position"] + HEADER_BYTES, row["position"] + row["size"]
        assert set(unsealed[begin:records]) == {UNTOUCHED}
        assert unsealed[records:end].tobytes() == sealed[records:end].tobytes()
    seal_batches(rows, unsealed)
    assert unsealed.tobytes() == sealed.tobytes()
    assert rows.tolist() == sealed_rows.tolist()


def test_the_append_time_is_not_touched():
    _, rows = write(small_columns(), attributes=LOG_APPEND_TIME_BIT, max_timestamp=7)
    assert rows["max_timestamp"].tolist() == [7]
    _, rows = write(small_columns(), max_timestamp=7)
    assert rows["max_timestamp"].tolist() == [104]


def test_some_batches_of_a_plan():
    whole, whole_rows = write(small_columns(6), batch_records=2)
    columns = (*small_columns(6), no_headers(6))
    _, body_size, first_row = plan(*columns[:4], batch_records=2)
    rows = np.zeros(3, BATCH_DTYPE)
    rows["magic"] = 2
    out = np.full(int(whole_rows["size"][1]) + SLACK, UNTOUCHED, np.uint8)
    write_batches(*columns, body_size, np.array(first_row, np.int64), rows, 1, 2, True, out)
    begin = whole_rows["position"][1]
    size = whole_rows["size"][1]
    assert rows["position"][1] == 0
    assert out[:size].tobytes() == whole[begin : begin + size].tobytes()
    assert rows["size"].tolist() == [0, size, 0]


GUARDED = """
import ctypes, mmap
import numpy as np
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.encode import HEADER_BYTES, BinaryColumn, plan_batches, write_batches
from duralog.kernels.writing import SLACK

def before_a_wall(size):
    "An array whose last byte is the last one of readable memory."
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    return array[pages - size : pages]

def frozen(array):
    array.flags.writeable = False
    return array

for length in (0, 1, 31, 32, 33, 64, 500, 513):
    data = before_a_wall(3 * length)
    data[:] = 65
    positions = frozen(np.arange(4, dtype=np.int64) * length)
    no_nulls = np.frombuffer(b"", np.uint8)
    fields = BinaryColumn(positions, frozen(data), no_nulls, 0)
    sections = BinaryColumn(frozen(np.arange(4, dtype=np.int64)), frozen(before_a_wall(3)), no_nulls, 0)
    numbers = frozen(np.arange(3, dtype=np.int64))
    body, rows = np.empty(3, np.int32), np.empty(4, np.int64)
    count, total, _ = plan_batches(numbers, numbers, fields, fields, sections, 1 << 20, 10, body, rows)
    out = before_a_wall(HEADER_BYTES * count + total + SLACK)
    batches = np.zeros(count, BATCH_DTYPE)
    write_batches(numbers, numbers, fields, fields, sections, body, rows, batches, 0, count, True, out)
print("inside")
"""


@pytest.mark.slow
def test_nothing_is_read_or_written_past_the_end():
    """In a process of its own: a wrong access ends it."""
    finished = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "inside\n"), finished.stderr
