"""LZ4 frames of many batches, unpacked in one call and without the GIL.

Only frames as Kafka's own writer makes them: independent blocks of 64 KiB, no checksums, no content size. Other frames,
and those that look damaged, are left to `duralog.format.lz4_frame`, which decides and raises the errors. So a kernel
may refuse what that one accepts, but never accepts what that one refuses: the rules for the end of a block are those of
the LZ4 library, the stricter one where it has two.

Nothing is read outside of a frame. Copies move whole vectors and may overshoot, within the block's room and `SLACK`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duralog.format.lz4_frame import BLOCK_BYTES, HEADER
from duralog.kernels.compilation.numba_names import intrinsic, ir, types
from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.words import BYTES, OUT_BYTES
from duralog.kernels.writing import SLACK, address_of, copy_bytes, load_byte, store_byte

UNPACKED = 0
"""All of them."""
FULL = 1
"""The next one may not fit."""
LEFT = 2
"""The next one is for the reference."""

ROOM_BYTES = BLOCK_BYTES + SLACK
"""What must be free for a block to be unpacked."""

_STORED = 0x80000000
_MIN_MATCH = 4
_LONG = 15
_LAST_LITERALS = 5
_LAST_MATCH = 12
"""A match starts at least this many bytes before the end of a block's room, and ends before the last literals."""
_AFTER_LITERALS = 8
"""How many bytes follow at least when literals are not the last: an offset, a token and the last literals."""
_SHORT_COPY = 16
_FAST_INPUT = _SHORT_COPY + _AFTER_LITERALS
_FAST_OUTPUT = 64
"""With so much left of both, up to 14 literals or a match of up to 18 bytes need no other check."""

_HEADER_WORD = int.from_bytes(HEADER[:4], "little")
_HEADER_REST = int.from_bytes(HEADER[4:], "little")
_HEADER_SIZE = len(HEADER)


def _loads(bits: int) -> Any:
    def typing(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = ir.IntType(bits)
            value = builder.load(builder.inttoptr(args[0], word.as_pointer()), align=1)
            return builder.zext(value, ir.IntType(64))

        return types.int64(types.int64), codegen

    typing.__name__ = f"load_{bits}_bits"
    return intrinsic(typing)


def _copies(size: int) -> Any:
    def typing(typingctx: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.IntType(8), size).as_pointer()
            value = builder.load(builder.inttoptr(args[0], vector), align=1)
            builder.store(value, builder.inttoptr(args[1], vector), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    typing.__name__ = f"copy_{size}"
    return intrinsic(typing)


_load_16_bits = _loads(16)
_load_32_bits = _loads(32)
_copy_16 = _copies(16)
_copy_8 = _copies(8)


@inlined
def _copy_match(target, distance, length):
    """Repeat `length` bytes from `distance` bytes back. May write 15 bytes more."""
    source = target - distance
    done = 0
    if distance >= 16:
        while done < length:
            _copy_16(source + done, target + done)
            done += 16
    elif distance >= 8:
        while done < length:
            _copy_8(source + done, target + done)
            done += 8
    else:
        while done < length:
            store_byte(target + done, load_byte(source + done))
            done += 1


@inlined
def _add_length(position, end):
    """What the extra bytes of a length add to it, and where they end: at `end` if they do not."""
    added = 0
    while position < end:
        byte = load_byte(position)
        position += 1
        added += byte
        if byte != 255:
            break
    return added, position


@device
def _unpack_block(position, end, first, room_end):
    """Unpack the block from `position` to `end` to `first` and on. Returns where that ends, 0 if it is not sound.

    REQUIRES: `SLACK` bytes after `room_end` may be written.
    """
    target = first
    while position < end:
        token = load_byte(position)
        position += 1
        literals = token >> 4
        if literals < _LONG and end - position >= _FAST_INPUT and room_end - target >= _FAST_OUTPUT:
            _copy_16(position, target)
        else:
            if literals == _LONG:
                added, position = _add_length(position, end)
                literals += added
            if literals > end - position or literals > room_end - target:
                return np.int64(0)
            copy_bytes(position, literals, end, target)
            if literals == end - position:
                return target + literals
            if end - position - literals < _AFTER_LITERALS or room_end - target - literals < _LAST_MATCH:
                return np.int64(0)
        position += literals
        target += literals

        distance = _load_16_bits(position)
        position += 2
        if distance == 0 or distance > target - first:
            return np.int64(0)
        length = token & _LONG
        if length < _LONG and distance >= _SHORT_COPY and room_end - target >= _FAST_OUTPUT:
            _copy_16(target - distance, target)
            _copy_16(target - distance + _SHORT_COPY, target + _SHORT_COPY)
            target += length + _MIN_MATCH
            continue
        if length == _LONG:
            added, position = _add_length(position, end)
            if end - position <= _LAST_LITERALS:
                return np.int64(0)
            length += added
        length += _MIN_MATCH
        if length > room_end - _LAST_LITERALS - target:
            return np.int64(0)
        _copy_match(target, distance, length)
        target += length
    return np.int64(0)


@kernel(
    types.Tuple((types.int64, types.int64))(
        *(BYTES, types.Array(types.int64, 1, "C", readonly=True), types.Array(types.int64, 1, "C", readonly=True)),
        *(types.int64, types.int64, OUT_BYTES, types.Array(types.int64, 1, "C")),
    )
)
def unpack_frames(data, begins, ends, first, max_bytes, out, out_ends):
    """Unpack the frames between begins[i] and ends[i], from number `first` on, one after the other.

    Returns (number, why): where it stopped. `out_ends` has the end of each unpacked one.
    REQUIRES: 0 <= begins[i] and ends[i] <= len(data).
    """
    source = address_of(data)
    start = address_of(out)
    target = start
    for number in range(first, len(begins)):
        position = source + begins[number]
        end = source + ends[number]
        if end - position < _HEADER_SIZE + 4 or _load_32_bits(position) != _HEADER_WORD:
            return number, LEFT
        if _load_32_bits(position + 3) >> 8 != _HEADER_REST:
            return number, LEFT
        position += _HEADER_SIZE
        content = target
        while True:
            if end - position < 4:
                return number, LEFT
            field = _load_32_bits(position)
            position += 4
            size = field & (_STORED - 1)
            if size == 0:
                break
            if size > BLOCK_BYTES or size > end - position:
                return number, LEFT
            if len(out) - (target - start) < ROOM_BYTES:
                return number, FULL
            if field & _STORED:
                target = copy_bytes(position, size, end, target)
            else:
                target = _unpack_block(position, position + size, target, target + BLOCK_BYTES)
                if target == 0:
                    return number, LEFT
            if target - content > max_bytes:
                return number, LEFT
            position += size
        out_ends[number] = target - start
    return np.int64(len(begins)), UNPACKED
