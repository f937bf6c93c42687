"""Numbers, times and byte strings as UTF-8 text, for the rendering kernels. Works on addresses, as `writing` does.

A function that writes text of no fixed length takes a `limit` and returns FULL instead of going far past it: it writes
at most `OVERRUN` bytes past the limit. The caller leaves that much room, and room for the fixed text up to the next
such call.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device
from duralog.kernels.words import VECTOR_BYTES
from duralog.kernels.writing import SLACK, copy_plain, leading_zeros, load_byte, put, store_byte, store_two_bytes

FULL = 0
"""No address: the text did not fit."""
NOT_TEXT = -1
"""No address: the bytes are not UTF-8."""

OVERRUN = VECTOR_BYTES + SLACK
MAX_DECIMAL_BYTES = 20

JSON = True
ESCAPED = False

_PAIRS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint16).copy()
"""The decimal digits of 0 to 99."""
_HEX = np.frombuffer(b"".join(b"%02x" % number for number in range(256)), np.uint16).copy()
_POWERS_OF_TEN = np.array([10**exponent for exponent in range(20)], np.uint64)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()

_QUOTE = ord('"')
_BACKSLASH = ord("\\")
_DELETE = 0x7F

_MS_PER_DAY = 86_400_000
_DAYS_TO_EPOCH = 719_468
"""From 1 March of the year 0 to 1 January 1970."""
_DAYS_PER_400_YEARS = 146_097


@device
def decimal_size(magnitude):
    """How many digits a uint64 has."""
    odd = magnitude | types.uint64(1)  # as many digits, and 0 has one too
    bits = 64 - leading_zeros(odd)
    guess = (bits * 1233) >> 12  # bits * log10(2): right, or one too few
    return guess + types.int64(odd >= _POWERS_OF_TEN[guess])


@device
def _put_digits(target, rest, size):
    """Write a uint64 with leading zeros to `size` digits. REQUIRES: it has no more."""
    place = target + size
    while place - target >= 2:
        place -= 2
        store_two_bytes(place, types.int64(_PAIRS[rest % types.uint64(100)]))
        rest //= types.uint64(100)
    if place > target:
        store_byte(target, types.int64(rest) + 48)
    return target + size


@device
def put_decimal(target, value):
    """Write an int64, at most MAX_DECIMAL_BYTES."""
    magnitude = types.uint64(value)
    if value < 0:
        target = put(target, "-")
        magnitude = types.uint64(0) - magnitude
    return _put_digits(target, magnitude, decimal_size(magnitude))


@device
def put_padded(target, value, width):
    """Write an int64 with spaces before it up to `width`."""
    magnitude = types.uint64(value)
    size = types.int64(0)
    if value < 0:
        magnitude = types.uint64(0) - magnitude
        size = types.int64(1)
    size += decimal_size(magnitude)
    while size < width:
        target = put(target, " ")
        size += 1
    return put_decimal(target, value)


@device
def put_time(target, timestamp_ms):
    """Write milliseconds since 1970 as 2023-11-14T22:13:20.000Z, at most 30 bytes.

    A year past 9999 gets a plus sign, one before the year 0 a minus sign, as in ISO 8601.
    """
    days = timestamp_ms // _MS_PER_DAY
    rest = types.uint64(timestamp_ms - days * _MS_PER_DAY)
    # Years are counted from 1 March, so that the odd day of a leap year is the last of its year.
    days += _DAYS_TO_EPOCH
    cycle = days // _DAYS_PER_400_YEARS
    day = days - cycle * _DAYS_PER_400_YEARS
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year += 400 * cycle
    month += 3
    if month > 12:
        month -= 12
        year += 1

    if year < 0:
        target = put(target, "-")
        year = -year
    elif year > 9999:
        target = put(target, "+")
    target = _put_digits(target, types.uint64(year), max(4, decimal_size(types.uint64(year))))
    target = _put_digits(put(target, "-"), types.uint64(month), 2)
    target = _put_digits(put(target, "-"), types.uint64(day + 1), 2)
    target = _put_digits(put(target, "T"), rest // types.uint64(3_600_000), 2)
    target = _put_digits(put(target, ":"), rest // types.uint64(60_000) % types.uint64(60), 2)
    target = _put_digits(put(target, ":"), rest // types.uint64(1000) % types.uint64(60), 2)
    target = _put_digits(put(target, "."), rest % types.uint64(1000), 3)
    return put(target, "Z")


@device
def character_size(source, end):
    """How many bytes the UTF-8 character takes that starts with a byte from 0x80 on; 0 if it is none.

    No surrogates, no longer forms than needed, nothing past U+10FFFF: what Python's strict decoder takes.
    """
    first = load_byte(source)
    left = end - source
    size = types.int64(0)
    lowest, highest = 0x80, 0xBF
    if first < 0xC2:
        pass
    elif first < 0xE0:
        size = 2
    elif first < 0xF0:
        size = 3
        if first == 0xE0:
            lowest = 0xA0
        elif first == 0xED:
            highest = 0x9F
    elif first < 0xF5:
        size = 4
        if first == 0xF0:
            lowest = 0x90
        elif first == 0xF4:
            highest = 0x8F
    if size > left:
        size = 0
    if size > 0:
        second = load_byte(source + 1)
        if second < lowest or second > highest:
            size = 0
    if size > 2 and load_byte(source + 2) & 0xC0 != 0x80:
        size = 0
    if size > 3 and load_byte(source + 3) & 0xC0 != 0x80:
        size = 0
    return size


@device
def _put_escape(target, byte, style):
    """Write a control character, a quote or a backslash."""
    if byte in (_QUOTE, _BACKSLASH):
        store_byte(target, _BACKSLASH)
        store_byte(target + 1, byte)
        target += 2
    elif byte == 0x0A:
        target = put(target, "\\n")
    elif byte == 0x0D:
        target = put(target, "\\r")
    elif byte == 0x09:
        target = put(target, "\\t")
    elif style == JSON and byte == 0x08:
        target = put(target, "\\b")
    elif style == JSON and byte == 0x0C:
        target = put(target, "\\f")
    else:
        if style == JSON:
            target = put(target, "\\u00")
        else:
            target = put(target, "\\x")
        store_two_bytes(target, types.int64(_HEX[byte]))
        target += 2
    return target


@device
def put_text(source, end, source_end, target, limit, style):
    """Write the bytes up to `end` as the inside of a quoted string; the result is an address, FULL or NOT_TEXT.

    JSON: escapes as JSON demands them and no others; bytes that are not UTF-8 are NOT_TEXT. ESCAPED: what a terminal
    would not show is escaped, and so is each byte that is not UTF-8. `source_end` is where the readable memory ends.
    """
    while source < end:
        if target > limit:
            return types.int64(FULL)
        if source + VECTOR_BYTES <= source_end:
            plain = min(copy_plain(source, target), end - source)
            source += plain
            target += plain
            if plain == VECTOR_BYTES or source == end:
                continue
        byte = load_byte(source)
        if byte >= 0x80:
            size = character_size(source, end)
            # U+0080 to U+009F are control characters.
            if style == ESCAPED and size == 2 and byte == 0xC2 and load_byte(source + 1) < 0xA0:
                size = 0
            if size == 0:
                if style == JSON:
                    return types.int64(NOT_TEXT)
                target = _put_escape(target, byte, style)
                source += 1
            while size > 0:
                store_byte(target, load_byte(source))
                source += 1
                target += 1
                size -= 1
        elif byte >= 0x20 and byte != _QUOTE and byte != _BACKSLASH and (style == JSON or byte != _DELETE):
            store_byte(target, byte)
            source += 1
            target += 1
        else:
            target = _put_escape(target, byte, style)
            source += 1
    return target


@device
def put_base64(source, length, target, limit):
    """Write bytes in base64, with padding; the result is an address, or FULL."""
    if target + (length + 2) // 3 * 4 > limit:
        return types.int64(FULL)
    end = source + length
    while end - source >= 3:
        bits = load_byte(source) << 16 | load_byte(source + 1) << 8 | load_byte(source + 2)
        store_byte(target, types.int64(_BASE64[bits >> 18]))
        store_byte(target + 1, types.int64(_BASE64[(bits >> 12) & 63]))
        store_byte(target + 2, types.int64(_BASE64[(bits >> 6) & 63]))
        store_byte(target + 3, types.int64(_BASE64[bits & 63]))
        source += 3
        target += 4
    left = end - source
    if left > 0:
        bits = load_byte(source) << 16
        if left == 2:
            bits |= load_byte(source + 1) << 8
        store_byte(target, types.int64(_BASE64[bits >> 18]))
        store_byte(target + 1, types.int64(_BASE64[(bits >> 12) & 63]))
        target = put(target + 2, "==")
        if left == 2:
            store_byte(target - 2, types.int64(_BASE64[(bits >> 6) & 63]))
    return target
