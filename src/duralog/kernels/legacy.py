"""Records of v0 and v1 messages, as positions and lengths.

A plain message is one record. A compressed one ("wrapper") is read in three steps: its value is found as if it were a
plain one, the value is decompressed elsewhere, and the messages inside are checked and decoded here. All of them are
checked before one is decoded, because a v1 wrapper tells the offset of its last record only.

The checks are those of `duralog.format.message_set`, in the same order.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import (
    CODEC_MASK,
    ENTRY_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC_POSITION,
    MESSAGE_V0,
    MESSAGE_V1,
    NO_TIMESTAMP,
)
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.crc import crc32
from duralog.kernels.decode import COLUMNS
from duralog.kernels.scan import BATCH_ROWS, entry_fault
from duralog.kernels.words import BYTES, load_int32, load_int64, load_uint32

_NONE = int(Fault.NONE)
_PARTIAL_BATCH = int(Fault.PARTIAL_BATCH)
_CRC_MISMATCH = int(Fault.CRC_MISMATCH)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_RECORD_LENGTH = int(Fault.RECORD_LENGTH)
_FIELD_LENGTH = int(Fault.FIELD_LENGTH)
_RECORD_NOT_CONSUMED = int(Fault.RECORD_NOT_CONSUMED)
_NESTED_COMPRESSION = int(Fault.NESTED_COMPRESSION)
_INNER_MAGIC = int(Fault.INNER_MAGIC)
_INNER_OFFSET = int(Fault.INNER_OFFSET)

_PREFIX = ENTRY_PREFIX.size
_AT_LENGTH = ENTRY_PREFIX.at.length
_AT_CRC = MESSAGE_V0.at.crc
_AT_ATTRIBUTES = MESSAGE_V0.at.attributes
_AT_TIMESTAMP = MESSAGE_V1.at.timestamp
_AT_KEY_LENGTH_V0 = MESSAGE_V0.at.key_length
_AT_KEY_LENGTH_V1 = MESSAGE_V1.at.key_length

_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")
_ROWS = types.Array(types.intp, 1, "C")


@device
def message_fields(data, position, end, magic):
    """(fault, key position, key length, value position, value length) of a message that has its smallest size."""
    key_start = position + 4
    if magic == 0:
        key_start += _AT_KEY_LENGTH_V0
    else:
        key_start += _AT_KEY_LENGTH_V1
    key_length = np.int64(load_int32(data, key_start - 4))
    value_start = key_start + max(key_length, 0) + 4
    if value_start > end:
        return _FIELD_LENGTH, key_start, key_length, value_start, np.int64(-1)
    value_length = np.int64(load_int32(data, value_start - 4))
    if value_length > end - value_start:
        return _FIELD_LENGTH, key_start, key_length, value_start, value_length
    if value_start + max(value_length, 0) != end:
        return _RECORD_NOT_CONSUMED, key_start, key_length, value_start, value_length
    return _NONE, key_start, key_length, value_start, value_length


@kernel(types.Tuple((types.int64,) * 3)(BYTES, _INT64S, BATCH_ROWS, _ROWS, types.int64, types.int64, _INT32S, *COLUMNS))
def decode_messages(
    data,
    begins,
    batches,
    rows,
    max_bytes,
    message,
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
    """Decode plain messages, from number `message` of `rows` on; of a wrapper, its own key and value.

    Returns (fault, message, filled): where to go on, or the message with the fault. Stops when the columns are full or
    the next message would make more than `max_bytes` of them.
    REQUIRES: the messages were scanned, begins[i] is where one starts in `data`, and all columns are of one length.
    """
    filled = 0
    used_bytes = 0
    while message < len(rows) and filled < len(offset):
        header = batches[rows[message]]
        position = begins[message]
        used_bytes += header.size
        if filled > 0 and used_bytes > max_bytes:
            break
        end = position + header.size
        fault, key_start, key_bytes, value_start, value_bytes = message_fields(data, position, end, header.magic)
        if fault != _NONE:
            return fault, message, filled
        batch_row[filled] = rows[message]
        offset[filled] = header.last_offset
        timestamp[filled] = header.max_timestamp
        key_position[filled] = key_start
        key_length[filled] = max(key_bytes, -1)
        value_position[filled] = value_start
        value_length[filled] = max(value_bytes, -1)
        headers_position[filled] = value_start
        header_count[filled] = 0
        filled += 1
        message += 1
    return _NONE, message, filled


@device
def _inner_fault(data, position, end, magic):
    """The first fault of the message that starts here inside a wrapper of this magic."""
    fault = entry_fault(data, position, end)
    if fault == _PARTIAL_BATCH:
        return _RECORD_LENGTH
    if fault != _NONE:
        return fault
    if data[position + MAGIC_POSITION] != magic:
        return _INNER_MAGIC
    if data[position + _AT_ATTRIBUTES] & CODEC_MASK:
        return _NESTED_COMPRESSION
    message_end = position + _PREFIX + load_int32(data, position + _AT_LENGTH)
    if crc32(data, position + MAGIC_POSITION, message_end) != load_uint32(data, position + _AT_CRC):
        return _CRC_MISMATCH
    return message_fields(data, position, message_end, magic)[0]


@kernel(types.Tuple((types.int64,) * 3)(BYTES, _INT64S, _INT64S, BATCH_ROWS, _ROWS, types.int64, _INT64S))
def check_inner_messages(data, begins, ends, batches, rows, wrapper, base_offsets):
    """Check what is inside of wrappers, from number `wrapper` of `rows` on, and find the offsets theirs count from.

    Returns (fault, wrapper, position): the first fault, in which wrapper, and where in `data`.
    REQUIRES: 0 <= begins[i] <= ends[i] <= len(data).
    """
    while wrapper < len(rows):
        header = batches[rows[wrapper]]
        position = begins[wrapper]
        end = ends[wrapper]
        if position == end:
            return _RECORD_COUNT, wrapper, position
        last = position
        while position < end:
            fault = _inner_fault(data, position, end, header.magic)
            if fault != _NONE:
                return fault, wrapper, position
            last = position
            position += _PREFIX + load_int32(data, position + _AT_LENGTH)
        base_offsets[wrapper] = 0
        # Offset 0 is what an old librdkafka left in the wrappers that it produced.
        if header.magic == 1 and header.last_offset != 0:
            last_offset = load_int64(data, last)
            if header.last_offset < last_offset:
                return _INNER_OFFSET, wrapper, last
            base_offsets[wrapper] = header.last_offset - last_offset
        wrapper += 1
    return _NONE, wrapper, np.int64(0)


@kernel(
    types.Tuple((types.int64,) * 3)(
        *(BYTES, _INT64S, _INT64S, BATCH_ROWS, _ROWS, _INT64S),
        *(types.int64, types.int64, types.int64, _INT32S),
        *COLUMNS,
    )
)
def decode_inner_messages(
    data,
    begins,
    ends,
    batches,
    rows,
    base_offsets,
    max_bytes,
    wrapper,
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
    """Decode from `position` in wrapper number `wrapper` on, until the columns are full or hold `max_bytes`.

    Returns (wrapper, position, filled): where to go on. REQUIRES: all wrappers were checked, and all columns are of one
    length.
    """
    filled = 0
    used_bytes = 0
    while wrapper < len(rows):
        header = batches[rows[wrapper]]
        while position < ends[wrapper]:
            size = _PREFIX + np.int64(load_int32(data, position + _AT_LENGTH))
            used_bytes += size
            if filled == len(offset) or (filled > 0 and used_bytes > max_bytes):
                return wrapper, position, filled
            end = position + size
            _, key_start, key_bytes, value_start, value_bytes = message_fields(data, position, end, header.magic)
            batch_row[filled] = rows[wrapper]
            offset[filled] = base_offsets[wrapper] + load_int64(data, position)
            if header.magic == 0:
                timestamp[filled] = NO_TIMESTAMP
            elif header.attributes & LOG_APPEND_TIME_BIT:
                timestamp[filled] = header.max_timestamp
            else:
                timestamp[filled] = load_int64(data, position + _AT_TIMESTAMP)
            key_position[filled] = key_start
            key_length[filled] = max(key_bytes, -1)
            value_position[filled] = value_start
            value_length[filled] = max(value_bytes, -1)
            headers_position[filled] = value_start
            header_count[filled] = 0
            filled += 1
            position += size
        wrapper += 1
        if wrapper < len(rows):
            position = begins[wrapper]
    return wrapper, position, filled
