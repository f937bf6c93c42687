from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.format.checksum import crc32, crc32c


def _bit_by_bit(data: bytes, polynomial: int) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (polynomial if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_check_values() -> None:
    assert crc32(b"123456789") == 0xCBF43926
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_all_kinds_of_buffers(make: type) -> None:
    assert crc32c(make(b"123456789")) == 0xE3069283
    assert crc32(make(b"123456789")) == 0xCBF43926


@given(st.binary(max_size=300))
def test_against_the_definition(data: bytes) -> None:
    assert crc32(data) == _bit_by_bit(data, 0xEDB88320)
    assert crc32c(data) == _bit_by_bit(data, 0x82F63B78)
