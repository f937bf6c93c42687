from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_bytes(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.encode_varint(value) == data
    assert varint.encode_varlong(value) == data
    assert varint.decode_varint(data, 0, len(data)) == (value, len(data))
    assert varint.decode_varlong(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01"), (2**31, "8080808010")],
)
def test_varlong_bytes(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.encode_varlong(value) == data
    assert varint.decode_varlong(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (2**32 - 1, "ffffffff0f")])
def test_unsigned_varint_bytes(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.encode_unsigned_varint(value) == data
    assert varint.decode_unsigned_varint(data, 0, len(data)) == (value, len(data))


@given(UINT32, st.binary(max_size=3), st.binary(max_size=3))
def test_unsigned_varints_come_back_from_the_middle_of_a_buffer(value: int, before: bytes, after: bytes) -> None:
    encoded = varint.encode_unsigned_varint(value)
    end = len(before) + len(encoded)
    for buffer in (before + encoded + after, memoryview(before + encoded + after)):
        assert varint.decode_unsigned_varint(buffer, len(before), len(buffer)) == (value, end)


@given(INT32)
def test_varints_come_back(value: int) -> None:
    encoded = varint.encode_varint(value)
    assert len(encoded) <= varint.MAX_VARINT_BYTES
    assert varint.decode_varint(encoded, 0, len(encoded)) == (value, len(encoded))


@given(INT64)
def test_varlongs_come_back(value: int) -> None:
    encoded = varint.encode_varlong(value)
    assert len(encoded) <= varint.MAX_VARLONG_BYTES
    assert varint.decode_varlong(encoded, 0, len(encoded)) == (value, len(encoded))


def test_longer_forms_than_needed_are_read() -> None:
    assert varint.decode_varint(b"\x80\x80\x80\x80\x00", 0, 5) == (0, 5)
    assert varint.decode_varlong(b"\x82" + b"\x80" * 8 + b"\x00", 0, 10) == (1, 10)


def test_bits_beyond_the_width_are_dropped() -> None:
    assert varint.decode_unsigned_varint(b"\x81\x80\x80\x80\x7f", 0, 5) == (0xF0000001, 5)
    assert varint.decode_varint(b"\x80\x80\x80\x80\x70", 0, 5) == (0, 5)
    assert varint.decode_varlong(b"\x80" * 9 + b"\x7e", 0, 10) == (0, 10)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (varint.decode_varint, b""),
        (varint.decode_varint, b"\x80"),
        (varint.decode_varint, b"\xff\xff\xff\xff"),
        (varint.decode_varint, b"\x80\x80\x80\x80\x80\x00"),
        (varint.decode_unsigned_varint, b"\xff" * 20),
        (varint.decode_varlong, b"\x80" * 9),
        (varint.decode_varlong, b"\x80" * 10 + b"\x00"),
    ],
)
def test_integers_that_do_not_end_are_refused_at_their_start(decode: object, data: bytes) -> None:
    with pytest.raises(CorruptRecord) as refusal:
        decode(b"\x00\x00" + data, 2, 2 + len(data))  # type: ignore[operator]
    assert refusal.value.fault is Fault.VARINT
    assert refusal.value.position == 2


def test_the_given_end_counts_and_not_the_buffers() -> None:
    with pytest.raises(CorruptRecord):
        varint.decode_varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (varint.encode_varint, 2**31),
        (varint.encode_varint, -(2**31) - 1),
        (varint.encode_varlong, 2**63),
        (varint.encode_varlong, -(2**63) - 1),
        (varint.encode_unsigned_varint, -1),
        (varint.encode_unsigned_varint, 2**32),
    ],
)
def test_values_out_of_range_are_refused(encode: object, value: int) -> None:
    with pytest.raises(InvalidRecord, match=str(value)):
        encode(value)  # type: ignore[operator]


@given(st.integers())
def test_sums_wrap_like_javas(value: int) -> None:
    wrapped = varint.as_int64(value)
    assert -(2**63) <= wrapped < 2**63
    assert (wrapped - value) % 2**64 == 0
