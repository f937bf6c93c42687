"""The rendering kernels: numbers, times and bytes to text, at every boundary, and never outside the output."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from datetime import datetime

import numpy as np
import pytest

from duralog.kernels.columns import BATCH_DTYPE, RecordColumns
from duralog.kernels.render import render_json, render_text
from duralog.kernels.text import MAX_DECIMAL_BYTES, put_base64, put_decimal, put_padded, put_time

UNTOUCHED = 0xAA
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NO_PREFIX = np.frombuffer(b"", np.uint8)


def text_of(function, *arguments):
    """What a function writes, and that it says where it ended."""
    out = np.full(100, UNTOUCHED, np.uint8)
    end = function(out.ctypes.data, *arguments) - out.ctypes.data
    assert set(out[end + 32 :]) == {UNTOUCHED}
    return out[:end].tobytes().decode()


NUMBERS = sorted(
    {sign * (10**power + near) for power in range(19) for sign in (1, -1) for near in (-1, 0, 1)}
    | {sign * ((1 << bits) + near) for bits in range(63) for sign in (1, -1) for near in (-1, 0, 1)}
    | {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1}
)


def test_numbers():
    for number in NUMBERS:
        text = text_of(put_decimal, number)
        assert text == str(number)
        assert len(text) <= MAX_DECIMAL_BYTES
        for width in (0, 5, 20):
            assert text_of(put_padded, number, width) == str(number).rjust(width)


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (951_868_800_000, "2000-03-01T00:00:00.000Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_001, "0000-12-31T23:59:59.999Z"),
        (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
        (INT64_MAX, "+292278994-08-17T07:12:55.807Z"),
        (INT64_MIN, "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_times(timestamp_ms, text):
    """The extremes are what java.time.Instant prints of them."""
    assert text_of(put_time, timestamp_ms) == text
    assert len(text) <= 30


def test_base64():
    for size in range(40):
        data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        expected = base64.b64encode(data.tobytes())
        out = np.full(100, UNTOUCHED, np.uint8)
        begin = out.ctypes.data
        assert put_base64(data.ctypes.data, size, begin, begin + len(expected)) == begin + len(expected)
        assert out[: len(expected)].tobytes() == expected
        if size:
            assert put_base64(data.ctypes.data, size, begin, begin + len(expected) - 1) == 0


class Rows:
    """One batch of records that have a value only, one after the other in the data."""

    def __init__(self, values, *, gap=b"", tail=b"-" * 64):
        self.data = np.frombuffer(gap.join(values) + tail, np.uint8)
        self.columns = RecordColumns.empty(len(values))
        lengths = np.array([len(value) for value in values], np.int64)
        self.columns.offset[:] = np.arange(len(values))
        self.columns.timestamp[:] = 0
        self.columns.key_position[:] = 0
        self.columns.key_length[:] = -1
        self.columns.value_position[:] = np.cumsum(lengths + len(gap)) - lengths - len(gap)
        self.columns.value_length[:] = lengths
        self.columns.headers_position[:] = 0
        self.columns.header_count[:] = 0
        self.batches = np.zeros(1, BATCH_DTYPE)
        self.batches["magic"] = 2
        self.batches["base_sequence"] = -1
        self.batch_row = np.zeros(len(values), np.int32)

    def json(self, row, out, position, prefix=NO_PREFIX):
        arguments = (self.data, *self.columns.arrays, self.batch_row, self.batches, prefix)
        return render_json(*arguments, row, out, position)

    def text(self, row, out, position, prefix=NO_PREFIX, max_bytes=INT64_MAX):
        arguments = (self.data, *self.columns.arrays, self.batch_row, self.batches, prefix, 0, max_bytes)
        return render_text(*arguments, row, out, position)

    def lines(self, kernel):
        out = np.empty(len(self.columns) * 200 + 8 * len(self.data) + 1000, np.uint8)
        row, end = kernel(0, out, 0)
        assert row == len(self.columns)
        return out[:end].tobytes().decode().split("\n")[:-1]


def json_of(number, value):
    fields = {"offset": number, "timestamp": 0, "timestamp_type": "CreateTime", "key": None}
    try:
        fields["value"] = value.decode()
    except UnicodeDecodeError:
        fields["value_base64"] = base64.b64encode(value).decode()
    return json.dumps(fields | {"headers": []}, ensure_ascii=False, separators=(",", ":"))


def escaped(value):
    named = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    shown = []
    for character in value.decode(errors="surrogateescape"):
        code = ord(character)
        if character in named:
            shown.append(named[character])
        elif code < 0x20 or code == 0x7F:
            shown.append(f"\\x{code:02x}")
        elif 0x80 <= code < 0xA0:
            shown.append(f"\\xc2\\x{code:02x}")
        elif 0xDC80 <= code <= 0xDCFF:
            shown.append(f"\\x{code - 0xDC00:02x}")
        else:
            shown.append(character)
    return "".join(shown)


def check(values, **layout):
    rows = Rows(values, **layout)
    assert rows.lines(rows.json) == [json_of(number, value) for number, value in enumerate(values)]
    head = "  1970-01-01T00:00:00.000Z  key null  value "
    assert rows.lines(rows.text) == [f'offset {number}{head}"{escaped(value)}"' for number, value in enumerate(values)]


def test_every_day_of_four_centuries():
    epoch = datetime(1970, 1, 1).toordinal()
    days = range(datetime(1900, 1, 1).toordinal(), datetime(2301, 1, 1).toordinal())
    rows = Rows([b""] * len(days))
    rows.columns.timestamp[:] = (np.array(days) - epoch) * 86_400_000
    assert [line.split()[2] for line in rows.lines(rows.text)] == [
        f"{datetime.fromordinal(day):%Y-%m-%d}T00:00:00.000Z" for day in days
    ]


EDGES = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)


def test_every_byte_and_every_pair_of_bytes():
    check([bytes([a]) for a in range(256)] + [bytes([a, b]) for a in range(256) for b in range(256)])


def test_sequences_of_three_bytes():
    check([bytes([a, b, c]) for a in range(0xDF, 0xF1) for b in range(256) for c in EDGES])


def test_sequences_of_four_bytes():
    check(
        [bytes([a, b, c, d]) for a in range(0xEF, 0xF8) for b in range(256) for c in EDGES[1:9:2] for d in EDGES[2:9:3]]
    )


SPECIAL = [b'"', b"\\", b"\n", b"\0", b"\x1f", b" ", b"~", b"\x7f", "é".encode(), "€".encode(), "😀".encode(), b"\xff"]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("tail", [b"", b"-" * 31, b"-" * 32, b'"' * 64], ids=["none", "31", "32", "quotes"])
def test_a_special_character_anywhere(special, tail):
    """At every place of the vectors that are looked at at once, whatever stands after the value."""
    values = [b"a" * before + special + b"b" * after for before in range(70) for after in (0, 1, 33)]
    check(values, tail=tail)
    check(values, tail=tail, gap=b"\xc3")


def test_a_character_that_the_value_ends_inside_of():
    for character in ("é", "€", "😀"):
        whole = character.encode()
        check([b"x" * 31 + whole[:kept] for kept in range(1, len(whole))], gap=whole[-1:], tail=whole[1:])


@pytest.mark.parametrize("kind", ["json", "text"])
@pytest.mark.parametrize("unit", [b"a", b"\x01", b"\xff", "é".encode()])
def test_the_output_is_never_overrun(kind, unit):
    values = [unit * (17 * number) for number in range(20)]
    rows = Rows(values)
    rows.columns.header_count[::3] = 2
    rows.data = np.concatenate([rows.data, np.frombuffer(b"\x02h\x00" + b"\x04hh\x01", np.uint8)])
    rows.columns.headers_position[:] = len(rows.data) - 7
    kernel = getattr(rows, kind)
    prefix = np.frombuffer(b'"p":1,' * 10, np.uint8)
    whole = np.empty(200_000, np.uint8)
    row, end = kernel(0, whole, 0, prefix=prefix)
    assert row == len(values)
    expected = whole[:end].tobytes()
    for size in [*range(0, 1500, 13), *range(1500, 9000, 97)]:
        memory = np.full(size + 64, UNTOUCHED, np.uint8)
        row, end = kernel(0, memory[:size], 0, prefix=prefix)
        assert set(memory[size:]) == {UNTOUCHED}
        done = memory[:end].tobytes()
        assert done == b"".join(expected.splitlines(keepends=True)[:row])
        rest = np.empty(200_000, np.uint8)
        last, rest_end = kernel(row, rest, 5, prefix=prefix)
        assert last == len(values)
        assert done + rest[5:rest_end].tobytes() == expected


GUARDED = """
import ctypes, mmap
import numpy as np
from duralog.kernels.columns import BATCH_DTYPE, RecordColumns
from duralog.kernels.render import render_json, render_text

def before_a_wall(size):
    "An array whose last byte is the last one of readable memory."
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(array.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    return array[pages - size : pages]

batches = np.zeros(1, BATCH_DTYPE)
prefix = before_a_wall(45)
prefix[:] = 32
for byte in (65, 10, 0xC3, 0xF0, 0xFF):
    for length in (1, 31, 32, 33, 64, 700):
        data = before_a_wall(length)
        data[:] = byte
        columns = RecordColumns.empty(1)
        for array in columns.arrays:
            array[:] = 0
        columns.key_length[:] = columns.value_length[:] = length
        for size in (700, 900, 1000, 1500, 6000, 12000):
            row = np.zeros(1, np.int32)
            render_json(data, *columns.arrays, row, batches, prefix, 0, before_a_wall(size), 0)
            for most in (3, 2**62):
                out = before_a_wall(size)
                render_text(data, *columns.arrays, row, batches, prefix, 20, most, 0, out, 0)
print("inside")
"""


def test_nothing_is_read_or_written_past_the_end():
    """In a process of its own: a wrong access ends it."""
    finished = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "inside\n"), finished.stderr
