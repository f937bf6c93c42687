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
from numpy.typing import NDArray

from duralog.errors import DuralogError
from duralog.kernels.compilation.cpu import HAS_WIDE_REGISTERS
from duralog.kernels.compilation.numba_names import cgutils, intrinsic, ir, types
from duralog.kernels.compile import inlined, kernel
from duralog.kernels.words import BYTES, load_native_uint64, load_uint8

LANES = 32 if HAS_WIDE_REGISTERS else 16
"""More than a vector takes: several go through the rounds in turn, since each step waits for the one before."""

_BLOCK_BYTES = 64
_PADDING_BYTES = 9
"""At the least: a bit to mark the end, and the length."""
_WORDS = _BLOCK_BYTES // 4
_STATE = _WORDS
_MOVING = _STATE + 4
_ROWS = _MOVING + 1
"""A workspace has this many rows of one 32-bit word a lane: the words of a block, the state, and which lanes move."""

_FIRST_STATE = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_ROTATIONS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
_WORD_STEPS = ((1, 0), (5, 1), (3, 5), (7, 0))
"""In round r, step s takes the block's word (factor * s + start) % 16."""
_CONSTANTS = tuple(int(abs(math.sin(step + 1)) * 2**32) for step in range(64))

_VECTOR = ir.VectorType(ir.IntType(32), LANES)
_WORKSPACE = types.Array(types.uint32, 1, "C")
_POSITIONS = types.Array(types.int64, 1, "C", readonly=True)
_LENGTHS = types.Array(types.int32, 1, "C", readonly=True)
DIGESTS = types.Array(types.uint64, 1, "C", readonly=True)
"""What kernels read: the rows of `Digests` one after the other."""
_OUT_DIGESTS = types.Array(types.uint64, 1, "C")

Digests = NDArray[np.uint64]
"""A row for each key: the sixteen bytes of its digest, as two words."""


def digests_of(data: NDArray[np.uint8], key_position: NDArray[np.int64], key_length: NDArray[np.int32]) -> Digests:
    """The digest of each key. REQUIRES: every length is 0 or more, and every key lies within the data."""
    digests = np.empty((len(key_position), 2), np.uint64)
    workspace = np.zeros(_ROWS * LANES, np.uint32)
    filled = digest_keys(data, key_position, key_length, workspace, digests.reshape(-1))
    if filled != len(digests):
        raise DuralogError(
            f"only {filled} of {len(digests)} keys have digests: the workspace is made for {LANES} lanes"
        )
    return digests


def _vector(number: int) -> Any:
    return ir.Constant(_VECTOR, [number] * LANES)


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
def _add_block(typingctx: Any, workspace: Any, is_first: Any) -> Any:
    """Take the block of every moving lane into its state; the first one into the state that all keys start with."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rotate_shape = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        rotate = cgutils.get_or_insert_function(builder.module, rotate_shape, f"llvm.fshl.v{LANES}i32")
        words = context.make_array(signature.args[0])(context, builder, args[0]).data

        def row(number: int) -> Any:
            first = builder.gep(words, [ir.Constant(ir.IntType(64), number * LANES)])
            return builder.bitcast(first, _VECTOR.as_pointer())

        block = [builder.load(row(number), align=4) for number in range(_WORDS)]
        is_moving = builder.icmp_unsigned("!=", builder.load(row(_MOVING), align=4), _vector(0))
        before = [
            builder.select(args[1], _vector(first), builder.load(row(_STATE + number), align=4))
            for number, first in enumerate(_FIRST_STATE)
        ]
        a, b, c, d = before
        for step, constant in enumerate(_CONSTANTS):
            turn = step // 16
            factor, start = _WORD_STEPS[turn]
            word = builder.add(block[(factor * step + start) % _WORDS], _vector(constant))
            mixed = builder.add(builder.add(a, word), _mixed(builder, turn, b, c, d))
            rotated = builder.call(rotate, [mixed, mixed, _vector(_ROTATIONS[turn][step % 4])])
            a, b, c, d = d, builder.add(b, rotated), b, c
        for number, (old, change) in enumerate(zip(before, (a, b, c, d), strict=True)):
            new = builder.select(is_moving, builder.add(old, change), old)
            builder.store(new, row(_STATE + number), align=4)
        return context.get_dummy_value()

    return types.void(workspace, types.boolean), codegen


@inlined
def _last_bytes(data, position, count):
    """The next `count` bytes, fewer than eight, as a word whose other bytes are zero."""
    if position + 8 <= len(data):
        return load_native_uint64(data, position) & ((np.uint64(1) << np.uint64(8 * count)) - np.uint64(1))
    word = np.uint64(0)
    for byte in range(count):
        word |= np.uint64(load_uint8(data, position + byte)) << np.uint64(8 * byte)
    return word


@inlined
def _put_words(workspace, number, lane, pair):
    """Words `number` and the next one of the lane's block, from eight bytes."""
    at = np.uintp(number * LANES + lane)
    workspace[at] = np.uint32(pair)
    workspace[at + np.uintp(LANES)] = np.uint32(pair >> np.uint64(32))


@inlined
def _put_block(data, position, length, first, workspace, lane):
    """Put what a block holds from byte `first` of a padded key on. REQUIRES: the block is zero."""
    left = length - first
    held = min(max(left, 0), _BLOCK_BYTES)
    whole = held >> 3
    position += first
    for pair in range(whole):
        _put_words(workspace, 2 * pair, lane, load_native_uint64(data, position + 8 * pair))
    if left >= 0 and whole < _BLOCK_BYTES // 8:
        count = held & 7
        end_mark = np.uint64(0x80) << np.uint64(8 * count)
        _put_words(workspace, 2 * whole, lane, _last_bytes(data, position + 8 * whole, count) | end_mark)
    if left < _BLOCK_BYTES - 8:
        _put_words(workspace, _WORDS - 2, lane, np.uint64(length) << np.uint64(3))


@kernel(types.int64(BYTES, _POSITIONS, _LENGTHS, _WORKSPACE, _OUT_DIGESTS))
def digest_keys(data, key_position, key_length, workspace, digests):
    """Fill a row of `digests` for each key. REQUIRES: as `digests_of`, and a workspace of zeros.

    Returns how many keys have digests: none if the workspace is too small for this code.
    """
    if len(workspace) < _ROWS * LANES:
        return 0
    for first_key in range(0, len(key_position), LANES):
        keys = min(LANES, len(key_position) - first_key)
        longest = np.int64(0)
        for key in range(first_key, first_key + keys):
            longest = max(longest, np.int64(key_length[key]))
        for first in range(0, longest + _PADDING_BYTES, _BLOCK_BYTES):
            workspace[: _WORDS * LANES] = np.uint32(0)
            for lane in range(keys):
                key = np.uintp(first_key + lane)
                length = np.int64(key_length[key])
                is_moving = first < length + _PADDING_BYTES
                workspace[np.uintp(_MOVING * LANES + lane)] = is_moving
                if is_moving:
                    _put_block(data, key_position[key], length, first, workspace, lane)
            _add_block(workspace, first == 0)
        for lane in range(keys):
            at = np.uintp(_STATE * LANES + lane)
            a = np.uint64(workspace[at])
            b = np.uint64(workspace[at + np.uintp(LANES)])
            c = np.uint64(workspace[at + np.uintp(2 * LANES)])
            d = np.uint64(workspace[at + np.uintp(3 * LANES)])
            key = np.uintp(2 * (first_key + lane))
            digests[key] = a | b << np.uint64(32)
            digests[key + np.uintp(1)] = c | d << np.uint64(32)
    return len(key_position)
