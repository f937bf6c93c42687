"""Varints, lengths, blocks of items, UTF-8 and decimals. All of it works on addresses.

A reader returns the value and the address after it, or, instead of the address, minus the fault. `end` is where the
row ends: what is read lies before it. `data_end` is where the readable memory ends: a whole word or vector may be
loaded up to there, whatever row its bytes belong to.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.avro.program import AvroFault
from duralog.kernels.avro.words import copy_marked, load_word, trailing_zeros
from duralog.kernels.compile import device, inlined
from duralog.kernels.text import character_size
from duralog.kernels.words import VECTOR_BYTES
from duralog.kernels.writing import copy_exactly, load_byte, store_byte

_CUT = int(AvroFault.CUT)
_VARINT = int(AvroFault.VARINT)
_NEGATIVE_LENGTH = int(AvroFault.NEGATIVE_LENGTH)
_TOO_MANY_ITEMS = int(AvroFault.TOO_MANY_ITEMS)

_MAX_VARINT_BYTES = 10
HIGH_BITS = np.uint64(0x8080808080808080)
"""Of the bytes of a varint, the last one does not have it."""


@device
def _long_unsigned(position, end):
    """A varint of any size, byte by byte."""
    value = np.uint64(0)
    shift = np.uint64(0)
    last = position + _MAX_VARINT_BYTES
    while position < end:
        byte = np.uint64(load_byte(position))
        position += 1
        if position == last and byte > np.uint64(1):
            return np.uint64(0), np.int64(-_VARINT)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return value, position
        shift += np.uint64(7)
    return np.uint64(0), np.int64(-_CUT)


@inlined
def read_unsigned(position, end, data_end):
    """A varint of at most ten bytes, as a uint64."""
    if position < end:
        first = np.uint64(load_byte(position))
        if first < np.uint64(0x80):
            return first, position + 1
        if position + 8 <= data_end:
            word = np.uint64(load_word(position))
            stops = ~word & HIGH_BITS
            if stops != np.uint64(0):
                bits = trailing_zeros(stops) + np.uint64(1)
                following = position + np.int64(bits >> np.uint64(3))
                if following > end:
                    return np.uint64(0), np.int64(-_CUT)
                word &= np.uint64(0x7F7F7F7F7F7F7F7F) & (~np.uint64(0) >> (np.uint64(64) - bits))
                word = word & np.uint64(0x007F007F007F007F) | (word & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
                word = word & np.uint64(0x00003FFF00003FFF) | (word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
                word = word & np.uint64(0x0FFFFFFF) | (word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
                return word, following
    return _long_unsigned(position, end)


@inlined
def read_long(position, end, data_end):
    unsigned, following = read_unsigned(position, end, data_end)
    return np.int64(unsigned >> np.uint64(1)) ^ -np.int64(unsigned & np.uint64(1)), following


@inlined
def read_int(position, end, data_end):
    """As `read_long`, and a fault if it has more than five bytes or 32 bits."""
    unsigned, following = read_unsigned(position, end, data_end)
    if following - position > 5 or unsigned >> np.uint64(32) != np.uint64(0):
        following = np.int64(-_VARINT)
    return np.int64(unsigned >> np.uint64(1)) ^ -np.int64(unsigned & np.uint64(1)), following


@inlined
def read_length(position, end, data_end):
    """The length of a string or byte string, which lies before `end`."""
    length, following = read_long(position, end, data_end)
    if following > 0:
        if length < 0:
            return length, np.int64(-_NEGATIVE_LENGTH)
        if length > end - following:
            return length, np.int64(-_CUT)
    return length, following


@device
def read_block(position, end, data_end, has_bytes):
    """The head of a block of an array or map: (items, where they begin, minus 1 or the block's size, place of a fault).

    0 items end the array.
    """
    items, following = read_long(position, end, data_end)
    size = np.int64(-1)
    if following < 0:
        return items, following, size, position
    head = position
    if items < 0:
        head = following
        size, following = read_length(following, end, data_end)
        if following < 0:
            return items, following, size, head
        head = position
        items = -items
    if items < 0 or (has_bytes and items > end - following):
        return items, np.int64(-_TOO_MANY_ITEMS), size, head
    return items, following, size, head


@device
def _is_utf8(source, end):
    while source < end:
        if load_byte(source) < 0x80:
            source += 1
        else:
            size = character_size(source, end)
            if size == 0:
                return False
            source += size
    return True


@inlined
def copy_text(source, size, data_end, target):
    """Copy `size` bytes; whether they are UTF-8. REQUIRES: room for `VECTOR_BYTES` more at the target."""
    if source + ((size + (VECTOR_BYTES - 1)) & -VECTOR_BYTES) > data_end:
        copy_exactly(source, size, target)
        return _is_utf8(source, source + size)
    marks = np.int64(0)
    done = np.int64(0)
    while done + VECTOR_BYTES <= size:
        marks |= copy_marked(source + done, target + done)
        done += VECTOR_BYTES
    if done < size:
        marks |= copy_marked(source + done, target + done) & ((np.int64(1) << (size - done)) - np.int64(1))
    return marks == 0 or _is_utf8(source, source + size)


@device
def copy_decimal(source, size, target, words, limit):
    """Write a big-endian number as `words` little-endian words; False if it is not within +- the limit's words."""
    if size <= 0:
        return False
    fill = np.int64(0)
    if load_byte(source) >= 0x80:
        fill = np.int64(0xFF)
    width = words * 8
    last = source + size - 1
    for place in range(min(size, width)):
        store_byte(target + place, load_byte(last - place))
    for place in range(size, width):
        store_byte(target + place, fill)
    for place in range(width, size):
        if load_byte(last - place) != fill:
            return False
    if (load_byte(target + width - 1) >= 0x80) != (fill != 0):
        return False
    # The number is below the limit if the difference of magnitudes, from the lowest word up, borrows at the end.
    borrow = np.uint64(0)
    carry = np.uint64(1)
    for word in range(words):
        magnitude = np.uint64(load_word(target + 8 * word))
        if fill != 0:
            magnitude = ~magnitude + carry
            if magnitude != np.uint64(0):
                carry = np.uint64(0)
        bound = np.uint64(load_word(limit + 8 * word))
        if magnitude < bound:
            borrow = np.uint64(1)
        elif magnitude > bound:
            borrow = np.uint64(0)
    return borrow != np.uint64(0)
