"""Records of v2 batches as positions and lengths, many batches at a call.

The bytes are those of the batches as they lie in a file or, decompressed, in a scratch buffer; `begins` and `ends` tell
where the records of each batch lie in them. Nothing is trusted: a record never reads outside its batch, a field never
outside its record, and a row is written only where there is room. The checks are those of
`duralog.format.record_batch`, in the same order.

A batch is all or nothing. One whose records do not fit into the rows at once is checked first (`CHECK`) and then
decoded slice by slice (`SLICE`), so the memory needed does not depend on what a batch claims to hold.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, inlined, kernel
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES, load_native_uint16, load_native_uint64, load_uint8

WHOLE = 0
"""Decode batches as long as all records of the next one fit."""
CHECK = 1
"""Write nothing."""
SLICE = 2
"""Fill the rows, even if that ends in the middle of a batch. REQUIRES: the batch was checked."""

MIN_RECORD_BYTES = 7

_NONE = int(Fault.NONE)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_VARINT = int(Fault.VARINT)
_RECORD_LENGTH = int(Fault.RECORD_LENGTH)
_FIELD_LENGTH = int(Fault.FIELD_LENGTH)
_HEADER_COUNT = int(Fault.HEADER_COUNT)
_HEADER_KEY = int(Fault.HEADER_KEY)
_RECORD_NOT_CONSUMED = int(Fault.RECORD_NOT_CONSUMED)
_TRAILING_BYTES = int(Fault.TRAILING_BYTES)
_UNUSUAL = -1
_USUAL_BYTES = 16
"""As many as are read of a record before its length is used."""

_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")
COLUMNS = (_INT64S, _INT64S, _INT64S, _INT32S, _INT64S, _INT32S, _INT64S, _INT32S)
"""The arrays of `RecordColumns`, in its order."""


@device
def _long_unsigned(data, position, end, max_bytes):
    """A variable-length integer of any size, and where it ends: -1 if it does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    last = min(end, position + max_bytes)
    while position < last:
        byte = np.uint64(load_uint8(data, position))
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return value, position
        shift += np.uint64(7)
    return value, np.int64(-1)


@inlined
def _unsigned(data, position, end, max_bytes):
    """As `_long_unsigned`, with the usual one and two bytes first."""
    if position < end:
        first = np.uint64(load_uint8(data, position))
        if first < 0x80:
            return first, position + 1
        if position + 1 < end:
            second = np.uint64(load_uint8(data, position + 1))
            if second < 0x80:
                return first & np.uint64(0x7F) | second << np.uint64(7), position + 2
    return _long_unsigned(data, position, end, max_bytes)


@inlined
def read_varint(data, position, end):
    """The integer at `position` and where it ends, or -1 as its end where it is too long or cut off."""
    unsigned, position = _unsigned(data, position, end, 5)
    folded = np.uint32(unsigned)
    return np.int64(np.int32(folded >> np.uint32(1)) ^ -np.int32(folded & np.uint32(1))), position


@inlined
def read_varlong(data, position, end):
    unsigned, position = _unsigned(data, position, end, 10)
    return np.int64(unsigned >> np.uint64(1)) ^ -np.int64(unsigned & np.uint64(1)), position


@device
def skip_headers(data, position, end, count):
    """Where `count` headers end, with the fault that was found on the way."""
    for _ in range(count):
        length, position = read_varint(data, position, end)
        if position < 0:
            return _VARINT, position
        if length < 0:
            return _HEADER_KEY, position
        if length > end - position:
            return _FIELD_LENGTH, position
        length, position = read_varint(data, position + length, end)
        if position < 0:
            return _VARINT, position
        if length > end - position:
            return _FIELD_LENGTH, position
        position += max(length, 0)
    return _NONE, position


@inlined
def _refused(fault):
    nothing = np.int64(0)
    return fault, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing


@inlined
def _no_fields(fault):
    nothing = np.int64(0)
    return fault, nothing, nothing, nothing, nothing, nothing, nothing, nothing


@inlined
def _folded(unsigned):
    return (unsigned >> 1) ^ -(unsigned & 1)


@inlined
def _usual_fields(data, position, end):
    """As `_fields`, of a record whose numbers take one or two bytes each, as nearly all do. `_UNUSUAL` for any other.

    Bytes may be read before it is known that they belong to the record, but none outside of the batch.
    """
    if end - position < _USUAL_BYTES:
        return _no_fields(_UNUSUAL)
    word = np.int64(load_native_uint64(data, position))  # The signs that it shifts in are not looked at.
    length = word & 0x7F
    if word & 0x80:
        if word & 0x8000:
            return _no_fields(_UNUSUAL)
        length |= (word >> 1) & 0x3F80
        word >>= 8
        position += 1
    record_end = position + 1 + (length >> 1)
    if length & 1 or record_end > end:
        return _no_fields(_UNUSUAL)

    word >>= 16
    timestamp_delta = word & 0x7F
    if word & 0x80:
        if word & 0x8000:
            return _no_fields(_UNUSUAL)
        timestamp_delta |= (word >> 1) & 0x3F80
        word >>= 8
        position += 1
    word >>= 8
    offset_delta = word & 0x7F
    if word & 0x80:
        if word & 0x8000:
            return _no_fields(_UNUSUAL)
        offset_delta |= (word >> 1) & 0x3F80
        position += 1

    key = position + 5
    word = np.int64(load_native_uint16(data, key - 1))
    key_length = word & 0x7F
    if word & 0x80:
        if word & 0x8000:
            return _no_fields(_UNUSUAL)
        key_length |= (word >> 1) & 0x3F80
        key += 1
    key_length = _folded(key_length)
    value = key + max(key_length, 0) + 1
    if value >= record_end:
        return _no_fields(_UNUSUAL)
    word = np.int64(load_native_uint16(data, value - 1))
    value_length = word & 0x7F
    if word & 0x80:
        if word & 0x8000:
            return _no_fields(_UNUSUAL)
        value_length |= (word >> 1) & 0x3F80
        value += 1
    value_length = _folded(value_length)
    if max(value_length, 0) >= record_end - value:
        return _no_fields(_UNUSUAL)
    return (
        *(_NONE, record_end, _folded(timestamp_delta), _folded(offset_delta)),
        *(key, key_length, value, value_length),
    )


@device
def _fields(data, position, end):
    """A record up to its headers: (fault, where it ends, timestamp delta, offset delta, key, value)."""
    length, position = read_varint(data, position, end)
    if position < 0:
        return _no_fields(_VARINT)
    if length < 0 or length > end - position:
        return _no_fields(_RECORD_LENGTH)
    if length == 0:
        return _no_fields(_FIELD_LENGTH)
    end = position + length
    timestamp_delta, position = read_varlong(data, position + 1, end)
    if position < 0:
        return _no_fields(_VARINT)
    offset_delta, position = read_varint(data, position, end)
    if position < 0:
        return _no_fields(_VARINT)

    key_length, key = read_varint(data, position, end)
    if key < 0:
        return _no_fields(_VARINT)
    if key_length > end - key:
        return _no_fields(_FIELD_LENGTH)
    value_length, value = read_varint(data, key + max(key_length, 0), end)
    if value < 0:
        return _no_fields(_VARINT)
    if value_length > end - value:
        return _no_fields(_FIELD_LENGTH)
    return _NONE, end, timestamp_delta, offset_delta, key, key_length, value, value_length


@inlined
def read_record(data, position, end):
    """The record at `position`, all of it checked, of a batch whose records end at `end`.

    Returns (fault, where it ends, timestamp delta, offset delta, key position and length, value position and length,
    headers position, header count). Any negative length is a null. With a fault, the other numbers mean nothing.
    """
    found = _usual_fields(data, position, end)
    if found[0] != _NONE:
        found = _fields(data, position, end)
        if found[0] != _NONE:
            return _refused(found[0])
    _, end, timestamp_delta, offset_delta, key, key_length, value, value_length = found
    position = value + max(value_length, 0)
    header_count, headers = np.int64(0), position + 1
    if headers != end or load_uint8(data, position) != 0:  # else the record ends with "no headers", as most do
        header_count, headers = read_varint(data, position, end)
        if headers < 0:
            return _refused(_VARINT)
        if header_count < 0 or header_count > end - headers:
            return _refused(_HEADER_COUNT)
        fault, position = skip_headers(data, headers, end, header_count)
        if fault != _NONE:
            return _refused(fault)
        if position != end:
            return _refused(_RECORD_NOT_CONSUMED)
    return _NONE, end, timestamp_delta, offset_delta, key, key_length, value, value_length, headers, header_count


@kernel(
    types.Tuple((types.int64,) * 5)(
        *(BYTES, types.Array(types.int64, 1, "C"), types.Array(types.int64, 1, "C")),
        *(BATCH_ROWS, types.Array(types.intp, 1, "C")),
        *(types.int64, types.int64, types.int64, types.int64, types.int64, _INT32S),
        *COLUMNS,
    )
)
def decode_batches(
    data,
    begins,
    ends,
    batches,
    rows,
    mode,
    max_bytes,
    batch,
    record,
    position,
    batch_row,
    offset,
    timestamp,
    key_position,
    key_length,
    value_position,
    value_length,
    headers_position,
    header_count,
):
    """Decode from batch number `batch` of `rows` on, where `record` records lie behind and the next is at `position`.

    Returns (fault, batch, record, position, filled): how many rows are filled, and where to go on. With a fault, the
    batch and position are those of the fault, and the rows are those of the batches before. Stops, too, when the rows
    are full, or when they would hold more than `max_bytes` of records. No row filled and no fault, in `WHOLE`: the
    batch needs more than that alone. In `SLICE`, one record larger than `max_bytes` is a slice of its own.

    REQUIRES: 0 <= begins[i] <= ends[i] <= len(data), and all columns are of one length.
    """
    filled = 0
    used_bytes = 0
    sliced_bytes = 0
    room = len(offset)
    while batch < len(rows):
        header = batches[rows[batch]]
        count = np.int64(header.record_count)
        end = ends[batch]
        committed = filled
        if record == 0:
            position = begins[batch]
            if count < 0 or count * MIN_RECORD_BYTES > end - position:
                return _RECORD_COUNT, batch, record, position, committed
            used_bytes += end - position
            if mode == WHOLE and (count > room - filled or used_bytes > max_bytes):
                return _NONE, batch, record, position, filled
        base_offset = header.base_offset
        base_timestamp = header.base_timestamp
        delta_mask = np.int64(-1)
        if header.attributes & LOG_APPEND_TIME_BIT:
            base_timestamp = header.max_timestamp
            delta_mask = np.int64(0)

        while record < count:
            found = read_record(data, position, end)
            fault, record_end, timestamp_delta, offset_delta, key, key_bytes, value, value_bytes, headers, more = found
            if fault != _NONE:
                return fault, batch, record, position, committed
            if mode == SLICE:
                sliced_bytes += record_end - position
                if filled == room or (filled > 0 and sliced_bytes > max_bytes):
                    return _NONE, batch, record, position, filled
            position = record_end

            if mode != CHECK:
                row = np.uintp(filled)  # unsigned: numba asks of a signed index whether it is negative
                offset[row] = base_offset + offset_delta
                timestamp[row] = base_timestamp + (timestamp_delta & delta_mask)
                key_position[row] = key
                key_length[row] = max(key_bytes, -1)
                value_position[row] = value
                value_length[row] = max(value_bytes, -1)
                headers_position[row] = headers
                header_count[row] = more
                batch_row[row] = rows[batch]
                filled += 1
            record += 1

        if position != end:
            return _TRAILING_BYTES, batch, record, position, committed
        batch += 1
        record = 0
    return _NONE, batch, record, position, filled
