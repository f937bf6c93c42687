"""Variable-length integers: seven bits a byte, the lowest first, the high bit set on all bytes but the last.

`varint` (32 bits) and `varlong` (64 bits) are zigzag-coded, as v2 records use them; `unsigned_varint` is not, as
Kafka's flexible messages use it. A 32-bit integer takes at most 5 bytes, a 64-bit one at most 10. Readers accept
what Kafka accepts: longer forms than needed, and a last byte with bits beyond the width, which are dropped.

An integer that the bytes end inside of, or whose last allowed byte announces another, is a `CorruptRecord`
with the fault VARINT at the position of its first byte.
"""

from __future__ import annotations

from duralog.errors import CorruptRecord, Fault, InvalidRecord

Bytes = bytes | bytearray | memoryview
"""What decoders read from. A memoryview must be one of single bytes."""

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

_UINT32_MASK = 2**32 - 1
_UINT64_MASK = 2**64 - 1


def decode_unsigned_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """The value and the position after it. REQUIRES: `end` is not past the buffer's."""
    if position < end and buffer[position] < 0x80:  # As most are.
        return buffer[position], position + 1
    value, position = _decode_groups(buffer, position, end, MAX_VARINT_BYTES)
    return value & _UINT32_MASK, position


def decode_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    value, position = decode_unsigned_varint(buffer, position, end)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    value, position = _decode_groups(buffer, position, end, MAX_VARLONG_BYTES)
    value &= _UINT64_MASK
    return (value >> 1) ^ -(value & 1), position


def encode_unsigned_varint(value: int) -> bytes:
    if not 0 <= value < 2**32:
        raise InvalidRecord(f"{value} does not fit an unsigned 32-bit integer")
    return _encode_groups(value)


def encode_varint(value: int) -> bytes:
    if not -(2**31) <= value < 2**31:
        raise InvalidRecord(f"{value} does not fit a 32-bit integer")
    return _encode_groups((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    if not -(2**63) <= value < 2**63:
        raise InvalidRecord(f"{value} does not fit a 64-bit integer")
    return _encode_groups((value << 1) ^ (value >> 63))


def as_int64(value: int) -> int:
    """Wraps as Java's `long` does, which sums of untrusted fields may need."""
    return (value + 2**63) % 2**64 - 2**63


def _decode_groups(buffer: Bytes, start: int, end: int, max_bytes: int) -> tuple[int, int]:
    value = 0
    for count in range(max_bytes):
        position = start + count
        if position >= end:
            raise CorruptRecord(
                "the bytes end inside a variable-length integer",
                fault=Fault.VARINT,
                position=start,
                expected="one more byte",
                found="the end",
            )
        byte = buffer[position]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + 1
    raise CorruptRecord(
        "a variable-length integer is too long",
        fault=Fault.VARINT,
        position=start,
        expected=f"at most {max_bytes} bytes",
        found="more",
    )


def _encode_groups(value: int) -> bytes:
    if value < 0x80:
        return _SINGLE_BYTES[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


_SINGLE_BYTES = tuple(bytes([value]) for value in range(0x80))
