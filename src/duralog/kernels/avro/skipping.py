"""Values that no one asked for: only their ends are looked for.

`skip_values` skips those of one row. `walk_four_rows` goes over all fields of four rows at a time, to find where the
wanted ones are, in values of which little is read: where a field starts is known only when the length before it is
loaded, so a single row is a chain of loads, and the CPU waits for each. Four rows are four chains, and take half the
time. A row where anything is unusual (a long length, bad bytes, an end at the wrong place) is left to the program,
which skips field by field and knows the faults.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.avro.program import (
    FIXED_SIZE,
    LENGTH_FIRST,
    MARK,
    NULL_FIRST,
    NULL_SECOND,
    SKIP_FIELDS,
    VARINT,
    AvroFault,
)
from duralog.kernels.avro.reading import HIGH_BITS, read_length, read_long
from duralog.kernels.avro.words import load_word, store_word, trailing_zeros
from duralog.kernels.compile import device, inlined
from duralog.kernels.writing import load_byte

_CUT = int(AvroFault.CUT)
_UNION_INDEX = int(AvroFault.UNION_INDEX)


@inlined
def _skip_varint(position, end):
    """The address after a varint, of which nothing but the last byte is looked at."""
    while position < end:
        position += 1
        if load_byte(position - 1) < 0x80:
            return position
    return np.int64(-_CUT)


@device
def _skip_one(entry, position, end, data_end):
    """Skip any value: (the address after it, or minus the fault; the place of the fault)."""
    kind = load_word(entry)
    amount = load_word(entry + 8)
    at = position
    is_value = True
    if kind >= NULL_FIRST:
        null_branch = np.int64(kind >= NULL_SECOND)
        kind &= NULL_FIRST - 1
        branch, position = read_long(position, end, data_end)
        if position < 0:
            return position, at
        if branch not in (0, 1):
            return np.int64(-_UNION_INDEX), at
        is_value = branch != null_branch
        at = position
    if is_value:
        if kind == LENGTH_FIRST:
            length, position = read_length(position, end, data_end)
            if position < 0:
                return position, at
            position += length
        elif kind == VARINT:
            position = _skip_varint(position, end)
            if position < 0:
                return position, end
        elif amount > end - position:
            return np.int64(-_CUT), end
        else:
            position += amount
    if load_word(entry + 16) > end - position:
        return np.int64(-_CUT), end
    return position + load_word(entry + 16), end


@device
def _skip_slowly(entry, stop, position, end, data_end):
    """As `skip_values`, near the end of the readable memory."""
    at = position
    while entry < stop:
        position, at = _skip_one(entry, position, end, data_end)
        if position < 0:
            break
        entry += 8 * SKIP_FIELDS
    return position, at


@inlined
def stop_size(stops):
    """How many bytes there are up to the first stop bit."""
    return np.int64((trailing_zeros(stops) + np.uint64(1)) >> np.uint64(3))


@inlined
def skip_values(entry, stop, position, end, data_end):
    """Skip the values of a table: (the address after them, or minus the fault; the place of the fault).

    Almost all values are of the usual kind: a null branch and a length of one byte, a varint of up to eight. Their size
    takes a few instructions without a branch that depends on the value. All else, and all faults, are `_skip_one`'s.
    """
    if end + 16 > data_end:
        return _skip_slowly(entry, stop, position, end, data_end)
    while entry < stop:
        kind = load_word(entry)
        following = end + 1
        if kind == LENGTH_FIRST:
            length = load_byte(position)
            if length & 0x81 == 0:
                following = position + 1 + (length >> 1)
        elif kind == VARINT:
            stops = ~np.uint64(load_word(position)) & HIGH_BITS
            if stops != np.uint64(0):
                following = position + stop_size(stops)
        elif kind == FIXED_SIZE:
            following = position + load_word(entry + 8)
        else:
            branch = load_byte(position)
            # All bits are set if it is the value's branch.
            is_value = -((branch >> 1) ^ np.int64(kind >= NULL_SECOND))
            kind &= NULL_FIRST - 1
            if branch & ~2 != 0:
                pass
            elif kind == LENGTH_FIRST:
                length = load_byte(position + 1)
                if length & 0x81 & is_value == 0:
                    following = position + 1 + (1 + (length >> 1) & is_value)
            elif kind == VARINT:
                stops = ~np.uint64(load_word(position + 1)) & HIGH_BITS
                if stops != np.uint64(0):
                    following = position + 1 + (stop_size(stops) & is_value)
            else:
                following = position + 1 + (load_word(entry + 8) & is_value)
        following += load_word(entry + 16)
        if following > end:
            following, at = _skip_one(entry, position, end, data_end)
            if following < 0:
                return following, at
        position = following
        entry += 8 * SKIP_FIELDS
    return position, position


# Each takes the address in a row, the row's end and its begin, and returns the address after the value and the end. If
# the value is not usual: the begin, where bytes may be loaded, and -1, which no later value lies before.


@inlined
def _checked(is_usual, following, end, begin):
    if is_usual and following <= end:
        return following, end
    return begin, np.int64(-1)


@inlined
def _fixed(position, end, begin, size, tail):
    return _checked(True, position + size + tail, end, begin)


@inlined
def _length_first(position, end, begin, tail):
    length = load_byte(position)
    return _checked(length & 0x81 == 0, position + 1 + (length >> 1) + tail, end, begin)


@inlined
def _varint(position, end, begin, tail):
    stops = ~np.uint64(load_word(position)) & HIGH_BITS
    return _checked(stops != np.uint64(0), position + stop_size(stops) + tail, end, begin)


@inlined
def _nullable(position, end, begin, kind, amount, tail):
    branch = load_byte(position)
    # All bits are set if it is the value's branch.
    is_value = -((branch >> 1) ^ np.int64(kind >= NULL_SECOND))
    is_usual = branch & ~2 == 0
    kind &= NULL_FIRST - 1
    size = amount
    if kind == LENGTH_FIRST:
        length = load_byte(position + 1)
        is_usual &= length & 0x81 & is_value == 0
        size = 1 + (length >> 1)
    elif kind == VARINT:
        stops = ~np.uint64(load_word(position + 1)) & HIGH_BITS
        is_usual &= stops != np.uint64(0)
        size = stop_size(stops)
    return _checked(is_usual, position + 1 + (size & is_value) + tail, end, begin)


@device
def walk_four_rows(entry, stop, base, starts, ends, marks, lane_bytes):
    """Walk the rows at four `starts` and `ends`, and write the addresses of their marks to `marks`.

    The first mark of a row is 0 if the row is left to the program. REQUIRES: 16 bytes are readable after each end.
    """
    begin_0, begin_1 = base + load_word(starts), base + load_word(starts + 8)
    begin_2, begin_3 = base + load_word(starts + 16), base + load_word(starts + 24)
    end_0, end_1 = base + load_word(ends), base + load_word(ends + 8)
    end_2, end_3 = base + load_word(ends + 16), base + load_word(ends + 24)
    at_0, at_1, at_2, at_3 = begin_0, begin_1, begin_2, begin_3
    marks_1 = marks + lane_bytes
    marks_2 = marks_1 + lane_bytes
    marks_3 = marks_2 + lane_bytes
    while entry < stop:
        kind = load_word(entry)
        amount = load_word(entry + 8)
        tail = load_word(entry + 16)
        if kind == LENGTH_FIRST:
            at_0, end_0 = _length_first(at_0, end_0, begin_0, tail)
            at_1, end_1 = _length_first(at_1, end_1, begin_1, tail)
            at_2, end_2 = _length_first(at_2, end_2, begin_2, tail)
            at_3, end_3 = _length_first(at_3, end_3, begin_3, tail)
        elif kind == VARINT:
            at_0, end_0 = _varint(at_0, end_0, begin_0, tail)
            at_1, end_1 = _varint(at_1, end_1, begin_1, tail)
            at_2, end_2 = _varint(at_2, end_2, begin_2, tail)
            at_3, end_3 = _varint(at_3, end_3, begin_3, tail)
        elif kind == FIXED_SIZE:
            at_0, end_0 = _fixed(at_0, end_0, begin_0, amount, tail)
            at_1, end_1 = _fixed(at_1, end_1, begin_1, amount, tail)
            at_2, end_2 = _fixed(at_2, end_2, begin_2, amount, tail)
            at_3, end_3 = _fixed(at_3, end_3, begin_3, amount, tail)
        elif kind == MARK:
            store_word(marks + 8 * amount, at_0)
            store_word(marks_1 + 8 * amount, at_1)
            store_word(marks_2 + 8 * amount, at_2)
            store_word(marks_3 + 8 * amount, at_3)
        else:
            at_0, end_0 = _nullable(at_0, end_0, begin_0, kind, amount, tail)
            at_1, end_1 = _nullable(at_1, end_1, begin_1, kind, amount, tail)
            at_2, end_2 = _nullable(at_2, end_2, begin_2, kind, amount, tail)
            at_3, end_3 = _nullable(at_3, end_3, begin_3, kind, amount, tail)
        entry += 8 * SKIP_FIELDS
    if at_0 != end_0:
        store_word(marks, np.int64(0))
    if at_1 != end_1:
        store_word(marks_1, np.int64(0))
    if at_2 != end_2:
        store_word(marks_2, np.int64(0))
    if at_3 != end_3:
        store_word(marks_3, np.int64(0))
