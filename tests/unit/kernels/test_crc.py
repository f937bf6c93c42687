"""Checksums in kernels, by the CPU's instruction and by tables, against two C libraries."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import zlib

import crc32c
import numpy as np
import pytest
from numba import types

from duralog.kernels import crc
from duralog.kernels.compilation.cpu import HAS_CRC_INSTRUCTION
from duralog.kernels.compile import kernel
from duralog.kernels.words import BYTES

SIGNATURE = types.uint32(BYTES, types.int64, types.int64)


@kernel(SIGNATURE)
def by_instruction(data, start, end):
    return crc.crc32c_by_instruction(data, start, end)


@kernel(SIGNATURE)
def by_tables(data, start, end):
    return crc.crc32c_by_tables(data, start, end)


@kernel(SIGNATURE)
def ieee(data, start, end):
    return crc.crc32(data, start, end)


CASTAGNOLI = [
    pytest.param(
        by_instruction,
        id="instruction",
        marks=pytest.mark.skipif(not HAS_CRC_INSTRUCTION, reason="this CPU has no CRC-32C instruction"),
    ),
    pytest.param(by_tables, id="tables"),
]
# Around every length at which the loops change: bytes, words, three short streams, three long ones.
LENGTHS = [*range(20), 383, 384, 385, 391, 392, 767, 768, 769, 3071, 3072, 3073, 3455, 3456, 3457, 6144, 7000]


@pytest.mark.parametrize("checksum", CASTAGNOLI)
def test_check_value_of_crc32c(checksum) -> None:
    assert checksum(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xE3069283


def test_check_value_of_crc32() -> None:
    assert ieee(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926


@pytest.mark.parametrize("checksum", CASTAGNOLI)
def test_crc32c_of_all_lengths(checksum) -> None:
    content = random.Random(1).randbytes(8000)
    data = np.frombuffer(content, np.uint8)
    for length in LENGTHS:
        for start in range(9):
            assert checksum(data, start, start + length) == crc32c.crc32c(content[start : start + length])


def test_crc32_of_all_lengths() -> None:
    content = random.Random(2).randbytes(8000)
    data = np.frombuffer(content, np.uint8)
    for length in LENGTHS:
        for start in range(9):
            assert ieee(data, start, start + length) == zlib.crc32(content[start : start + length])


@pytest.mark.slow
def test_a_restricted_cpu_gets_the_tables() -> None:
    """numba may be configured to compile for less than the CPU has: the instruction would then not even compile."""
    program = (
        "import numpy as np\n"
        "from duralog.format.record_batch import encode\n"
        "from duralog.format.record import Record\n"
        "from duralog.kernels import crc, scan\n"
        "from duralog.kernels.columns import BATCH_DTYPE\n"
        "assert crc.crc32c is crc.crc32c_by_tables\n"
        "rows = np.zeros(2, BATCH_DTYPE)\n"
        "data = np.frombuffer(encode([Record(value=bytes(5000))]), np.uint8)\n"
        "assert scan.scan_batches(data, 0, True, rows)[0] == 1\n"
        "assert rows['crc_ok'][0] == 1\n"
    )
    environment = os.environ | {"DURALOG_KERNELS": "numba", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=600)
