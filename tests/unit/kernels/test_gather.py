"""Gathering fields into Arrow buffers: exact content, no byte outside, whatever the columns say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from duralog.format.varint import encode_varint
from duralog.kernels.gather import PADDING, gather, lay_out, list_headers

SIZES = [0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 200]


def int64s(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def int32s(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_offsets_total_and_nulls() -> None:
    offsets = np.empty(6, np.int32)
    assert lay_out(int32s(3, -1, 0, 5, -1), offsets) == (8, 2)
    assert offsets.tolist() == [0, 3, 3, 3, 8, 8]


def test_a_total_beyond_32_bits_is_reported() -> None:
    assert lay_out(int32s(2**31 - 1, 2**31 - 1, 2), np.empty(4, np.int32)) == (2**32, 0)


def test_nothing_to_lay_out() -> None:
    offsets = np.full(1, 9, np.int32)
    assert lay_out(int32s(), offsets) == (0, 0)
    assert offsets.tolist() == [0]


@pytest.mark.parametrize("slack", [0, 1, 31, 32, 33])
def test_fields_of_every_size(slack: int) -> None:
    """The last fields end `slack` bytes before the data does: where a whole vector would reach past its end."""
    chance = random.Random(slack)
    fields = [chance.randbytes(size) for size in chance.sample(SIZES, len(SIZES))]
    content = b"".join(fields)
    data = np.frombuffer(content + b"\xee" * slack, np.uint8)
    ends = np.cumsum([len(field) for field in fields])
    lengths = int32s(*(len(field) for field in fields))
    out = np.full(len(content) + PADDING + 8, 0xAA, np.uint8)
    assert gather(data, ends - lengths, lengths, out[:-8]) == len(fields)
    assert out[: len(content)].tobytes() == content
    assert out[-8:].tobytes() == b"\xaa" * 8, "written past the end of the output"


def test_nulls_and_empty_fields_take_no_bytes_and_no_position() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    out = np.empty(3 + PADDING, np.uint8)
    assert gather(data, int64s(2**62, 3, -(2**62)), int32s(-1, 3, 0), out) == 3
    assert out[:3].tobytes() == b"def"


@pytest.mark.parametrize(
    ("position", "length"),
    [(-1, 1), (6, 1), (5, 2), (2**63 - 1, 1), (0, 7), (0, 2**31 - 1), (-(2**63), 2**31 - 1), (2**63 - 2, 2**31 - 1)],
)
def test_a_field_outside_the_data_stops_the_gathering(position: int, length: int) -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    out = np.empty(100 + PADDING, np.uint8)
    assert gather(data, int64s(0, position, 0), int32s(2, length, 1), out) == 1


@pytest.mark.parametrize("room", [0, PADDING - 1, PADDING, PADDING + 5])
def test_an_output_without_room_stops_the_gathering(room: int) -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    assert gather(data, int64s(0), int32s(6), np.empty(room, np.uint8)) == 0


def test_headers_of_several_records() -> None:
    data = b"??" + b"\x02k\x01" + b"\x04kk\x02v" + b"\x00\x00"
    key_position, value_position = np.empty(3, np.int64), np.empty(3, np.int64)
    key_length, value_length = np.empty(3, np.int32), np.empty(3, np.int32)
    columns = (key_position, key_length, value_position, value_length)
    assert list_headers(np.frombuffer(data, np.uint8), int64s(2, 0, 10), int32s(2, 0, 1), *columns) == 3
    assert key_position.tolist() == [3, 6, 11]
    assert key_length.tolist() == [1, 2, 0]
    assert value_position.tolist() == [5, 9, 12]
    assert value_length.tolist() == [-1, 1, 0]


@pytest.mark.parametrize(
    ("data", "position", "count", "room"),
    [
        (b"\x02k\x01", 0, 1, 0),  # no room
        (b"\x02k\x01", -1, 1, 5),
        (b"\x02k\x01", 3, 1, 5),
        (b"\x02k\x01", 2**62, 1, 5),
        (b"\x01", 0, 1, 5),  # no key
        (encode_varint(2**31 - 1), 0, 1, 5),
        (b"\x02k", 0, 1, 5),
        (b"\x02k\x04v", 0, 1, 5),
        (b"\x02k" + encode_varint(2**31 - 1), 0, 1, 5),
        (b"\x80" * 9, 0, 1, 5),
        (b"\x02k\x01", 0, 2**31 - 1, 5),
        (b"\x02k\x01", 0, -1, 5),
    ],
)
def test_headers_that_do_not_lie_within_the_data(data: bytes, position: int, count: int, room: int) -> None:
    columns = (np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int32))
    assert list_headers(np.frombuffer(data, np.uint8), int64s(position), int32s(count), *columns) == 0
