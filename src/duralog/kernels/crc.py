"""CRC-32C (v2 batches) and CRC-32 (v0 and v1 messages) inside kernels.

CRC-32C runs on the CPU's own instruction where the code that numba emits may use it. The instruction takes three
cycles but can start every cycle, so three streams run side by side and are joined afterwards: a checksum is linear,
and moving one over N bytes is four table lookups. Elsewhere, and for CRC-32, eight table lookups take eight bytes.

REQUIRES, of every function here: 0 <= start <= end <= len(data).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.compilation.cpu import HAS_CRC_INSTRUCTION
from duralog.kernels.compilation.numba_names import cgutils, intrinsic, ir, types
from duralog.kernels.compile import device
from duralog.kernels.words import load_native_uint64

_CASTAGNOLI = 0x82F63B78
_IEEE = 0xEDB88320
_ALL_ONES = np.uint32(0xFFFFFFFF)

_LONG = 1024
_SHORT = 128


def _byte_tables(polynomial: int, count: int) -> NDArray[np.uint32]:
    """Row k: what a byte does to the checksum, followed by k zero bytes. The polynomial is bit-reversed."""
    tables = np.zeros((count, 256), np.uint32)
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(polynomial), row >> 1)
    tables[0] = row
    for k in range(1, count):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 0xFF]
    return tables


def _skip_tables(polynomial: int, skipped: int) -> NDArray[np.uint32]:
    """Row k: what byte k of a checksum becomes after `skipped` zero bytes."""
    step = _byte_tables(polynomial, 1)[0]
    tables = np.arange(256, dtype=np.uint32)[None, :] << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    for _ in range(skipped):
        tables = (tables >> 8) ^ step[tables & 0xFF]
    return tables.astype(np.uint32)


_CASTAGNOLI_TABLES = _byte_tables(_CASTAGNOLI, 8)
_IEEE_TABLES = _byte_tables(_IEEE, 8)
_SKIP_LONG = _skip_tables(_CASTAGNOLI, _LONG)
_SKIP_SHORT = _skip_tables(_CASTAGNOLI, _SHORT)


def _crc_instruction(name: str, word: Any, checksum: Any) -> Any:
    def typing(typingctx: Any, crc: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            llvm_checksum, llvm_word = ir.IntType(checksum.bitwidth), ir.IntType(word.bitwidth)
            shape = ir.FunctionType(llvm_checksum, [llvm_checksum, llvm_word])
            return builder.call(cgutils.get_or_insert_function(builder.module, shape, name), args)

        return checksum(checksum, word), codegen

    typing.__name__ = name.rpartition("sse42.")[2].replace(".", "_")
    return intrinsic(typing)


_crc_of_8_bytes = _crc_instruction("llvm.x86.sse42.crc32.64.64", types.uint64, types.uint64)
_crc_of_byte = _crc_instruction("llvm.x86.sse42.crc32.32.8", types.uint8, types.uint32)


@device
def _skip(tables, crc):
    """The checksum, moved over the zero bytes that the tables are made for."""
    return np.uint64(
        tables[0, crc & np.uint64(0xFF)]
        ^ tables[1, (crc >> np.uint64(8)) & np.uint64(0xFF)]
        ^ tables[2, (crc >> np.uint64(16)) & np.uint64(0xFF)]
        ^ tables[3, (crc >> np.uint64(24)) & np.uint64(0xFF)]
    )


@device
def _three_streams(tables, span, data, position, crc):
    """The checksum of 3 * span bytes."""
    second = np.uint64(0)
    third = np.uint64(0)
    for at in range(position, position + span, 8):
        crc = _crc_of_8_bytes(crc, load_native_uint64(data, at))
        second = _crc_of_8_bytes(second, load_native_uint64(data, at + span))
        third = _crc_of_8_bytes(third, load_native_uint64(data, at + 2 * span))
    return _skip(tables, _skip(tables, crc) ^ second) ^ third


@device
def crc32c_by_instruction(data, start, end):
    crc = np.uint64(_ALL_ONES)
    position = start
    while end - position >= 3 * _LONG:
        crc = _three_streams(_SKIP_LONG, _LONG, data, position, crc)
        position += 3 * _LONG
    while end - position >= 3 * _SHORT:
        crc = _three_streams(_SKIP_SHORT, _SHORT, data, position, crc)
        position += 3 * _SHORT
    while end - position >= 8:
        crc = _crc_of_8_bytes(crc, load_native_uint64(data, position))
        position += 8
    tail = np.uint32(crc)
    while position < end:
        tail = _crc_of_byte(tail, data[position])
        position += 1
    return tail ^ _ALL_ONES


@device
def _by_tables(tables, data, start, end):
    crc = np.uint64(_ALL_ONES)
    low = np.uint64(0xFF)
    position = start
    while end - position >= 8:
        word = crc ^ load_native_uint64(data, position)
        crc = np.uint64(
            tables[7, word & low]
            ^ tables[6, (word >> np.uint64(8)) & low]
            ^ tables[5, (word >> np.uint64(16)) & low]
            ^ tables[4, (word >> np.uint64(24)) & low]
            ^ tables[3, (word >> np.uint64(32)) & low]
            ^ tables[2, (word >> np.uint64(40)) & low]
            ^ tables[1, (word >> np.uint64(48)) & low]
            ^ tables[0, word >> np.uint64(56)]
        )
        position += 8
    while position < end:
        crc = (crc >> np.uint64(8)) ^ np.uint64(tables[0, (crc ^ np.uint64(data[position])) & low])
        position += 1
    return np.uint32(crc) ^ _ALL_ONES


@device
def crc32c_by_tables(data, start, end):
    return _by_tables(_CASTAGNOLI_TABLES, data, start, end)


@device
def crc32(data, start, end):
    return _by_tables(_IEEE_TABLES, data, start, end)


crc32c = crc32c_by_instruction if HAS_CRC_INSTRUCTION else crc32c_by_tables
