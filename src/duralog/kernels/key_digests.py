"""MD5 of many keys: the name that an offset map knows a key by.

`LANES` keys go through the rounds of MD5 (RFC 1321) side by side, one in each lane of a vector. The rounds are written
as LLVM's own vector operations: they become the widest instructions that the CPU has, and several narrow ones where it
has none. A key that needs more than one block keeps its lane until its last one; the lanes of shorter keys stand still
meanwhile. So neighbours of about the same length cost least, and any length is right.

MD5 guards nothing here against an adversary. It is what Kafka's map holds, and two keys with one digest are one key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.words import BYTES, load_native_uint64, load_uint8

LANES = 16

_BLOCK_BYTES = 64
_WORDS = _BLOCK_BYTES // 4
_STATE = _WORDS
"""A workspace is rows of one 32-bit word a lane: the words of a block, the four of the state, which lanes move."""
_MOVING = _STATE + 4
_ROWS = _MOVING + 1

_FIRST_STATE = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_ROTATIONS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
_WORD_STEPS = ((1, 0), (5, 1), (3, 5), (7, 0))
"""In round r, step s takes the block's word (factor * s + start) % 16."""
_CONSTANTS = tuple(int(abs(math.sin(step + 1)) * 2**32) for step in range(64))

_WORKSPACE = types.Array(types.uint32, 2, "C")
_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")
DIGESTS = types.Array(types.uint64, 2, "C")
"""A row for each key: the sixteen bytes of its digest as two words, each as the machine loads it."""

Digests = NDArray[np.uint64]


def digests_of(data: NDArray[np.uint8], key_position: NDArray[np.int64], key_length: NDArray[np.int32]) -> Digests:
    """The digest of each key. REQUIRES: every length is 0 or more, and every key lies within the data."""
    digests = np.empty((len(key_position), 2), np.uint64)
    digest_keys(data, key_position, key_length, np.zeros((_ROWS, LANES), np.uint32), digests)
    return digests


def _vector(number: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), LANES), [number & 0xFFFFFFFF] * LANES)


def _mixed(builder: Any, turn: int, b: Any, c: Any, d: Any) -> Any:
    """The function of this round, of three of the state's words."""
    if turn == 0:
        return builder.xor(d, builder.and_(b, builder.xor(c, d)))
    if turn == 1:
        return builder.xor(c, builder.and_(d, builder.xor(b, c)))
    if turn == 2:
        return builder.xor(builder.xor(b, c), d)
    return builder.xor(c, builder.or_(b, builder.not_(d)))


@intrinsic
def _add_block(typingctx: Any, workspace: Any) -> Any:
    """Take the block of every moving lane into its state."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), LANES)
        rotate_shape = ir.FunctionType(vector, [vector] * 3)
        rotate = cgutils.get_or_insert_function(builder.module, rotate_shape, f"llvm.fshl.v{LANES}i32")
        words = context.make_array(signature.args[0])(context, builder, args[0]).data

        def row(number: int) -> Any:
            first = builder.gep(words, [ir.Constant(ir.IntType(64), number * LANES)])
            return builder.bitcast(first, vector.as_pointer())

        block = [builder.load(row(number), align=4) for number in range(_WORDS)]
        before = [builder.load(row(_STATE + number), align=4) for number in range(4)]
        a, b, c, d = before
        for step, constant in enumerate(_CONSTANTS):
            turn = step // 16
            factor, start = _WORD_STEPS[turn]
            word = builder.add(block[(factor * step + start) % _WORDS], _vector(constant))
            mixed = builder.add(builder.add(a, word), _mixed(builder, turn, b, c, d))
            rotated = builder.call(rotate, [mixed, mixed, _vector(_ROTATIONS[turn][step % 4])])
            a, b, c, d = d, builder.add(b, rotated), b, c
        is_moving = builder.icmp_unsigned("!=", builder.load(row(_MOVING), align=4), _vector(0))
        for number, (old, change) in enumerate(zip(before, (a, b, c, d), strict=True)):
            new = builder.select(is_moving, builder.add(old, change), old)
            builder.store(new, row(_STATE + number), align=4)
        return context.get_dummy_value()

    return types.void(workspace), codegen


@inlined
def _last_bytes(data, position, count):
    """The next `count` bytes, fewer than eight, as a word whose other bytes are zero."""
    if count == 0:
        return np.uint64(0)
    bits = np.uint64(64 - 8 * count)
    if position + 8 <= len(data):
        return load_native_uint64(data, position) << bits >> bits
    if position + count >= 8:
        return load_native_uint64(data, position + count - 8) >> bits
    word = np.uint64(0)
    for byte in range(count):
        word |= np.uint64(load_uint8(data, position + byte)) << np.uint64(8 * byte)
    return word


@inlined
def _put_words(workspace, number, lane, pair):
    """Words `number` and the next one of the lane's block, from eight bytes."""
    workspace[np.uintp(number), lane] = np.uint32(pair)
    workspace[np.uintp(number + 1), lane] = np.uint32(pair >> np.uint64(32))


@inlined
def _put_block(data, position, length, first, workspace, lane):
    """Put what a block holds from byte `first` of a padded key on. REQUIRES: the block is zero. Returns its words."""
    left = length - first
    held = min(max(left, 0), _BLOCK_BYTES)
    whole = held >> 3
    position += first
    for pair in range(whole):
        _put_words(workspace, 2 * pair, lane, load_native_uint64(data, position + 8 * pair))
    used = 2 * whole
    if left >= 0 and held < _BLOCK_BYTES:
        count = held & 7
        end_mark = np.uint64(0x80) << np.uint64(8 * count)
        _put_words(workspace, used, lane, _last_bytes(data, position + 8 * whole, count) | end_mark)
        used += 2
    if left < _BLOCK_BYTES - 8:
        _put_words(workspace, _WORDS - 2, lane, np.uint64(length) << np.uint64(3))
    return used


@device
def _digest_lanes(data, key_position, key_length, first_key, keys, workspace):
    """The digests of up to `LANES` keys, left in the workspace."""
    blocks = np.int64(0)
    for lane in range(LANES):
        for number in range(4):
            workspace[_STATE + number, lane] = _FIRST_STATE[number]
    for key in range(first_key, first_key + keys):
        blocks = max(blocks, (np.int64(key_length[key]) + 8) // _BLOCK_BYTES + 1)
    for block in range(blocks):
        workspace[:_STATE] = np.uint32(0)
        for lane in range(keys):
            length = np.int64(key_length[first_key + lane])
            is_moving = block * _BLOCK_BYTES < length + 9
            workspace[_MOVING, lane] = is_moving
            if is_moving:
                _put_block(
                    data, key_position[first_key + lane], length, block * _BLOCK_BYTES, workspace, np.uintp(lane)
                )
        _add_block(workspace)


@kernel(types.void(BYTES, _INT64S, _INT32S, _WORKSPACE, DIGESTS))
def digest_keys(data, key_position, key_length, workspace, digests):
    """Fill a row of `digests` for each key. REQUIRES: as `digests_of`, and a workspace of zeros."""
    for first_key in range(0, len(key_position), LANES):
        keys = min(LANES, len(key_position) - first_key)
        _digest_lanes(data, key_position, key_length, first_key, keys, workspace)
        for lane in range(keys):
            for half in range(2):
                low = np.uint64(workspace[_STATE + 2 * half, lane])
                high = np.uint64(workspace[_STATE + 2 * half + 1, lane])
                digests[first_key + lane, half] = low | high << np.uint64(32)
