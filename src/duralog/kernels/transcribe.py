"""Messages of formats v0 and v1 as records of format v2, for the kernels that know no other.

The timestamps of the records count from 0, their offsets from that of the first record of a message. Not every run of
offsets can be written so: one that does not increase, or spans more than 2^31, is left out.
"""

from __future__ import annotations

import numpy as np

from duralog.format.layout import (
    CODEC_MASK,
    ENTRY_PREFIX,
    LOG_APPEND_TIME_BIT,
    MESSAGE_V1,
    MIN_BATCH_BYTES,
    NO_TIMESTAMP,
)
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.legacy import message_fields
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES, OUT_BYTES, load_int32, load_int64
from duralog.kernels.writing import SLACK, address_of, copy_bytes, put_varint, store_byte, varint_size

_PREFIX = ENTRY_PREFIX.size
_AT_LENGTH = ENTRY_PREFIX.at.length
_AT_TIMESTAMP = MESSAGE_V1.at.timestamp
_INT32_MAX = 2**31 - 1
_NULL = -1

_INT64S = types.Array(types.int64, 1, "C")

_MAX_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 1
"""A record of v2 without its key and value, at its longest."""


def room_for(message_bytes: int) -> int:
    """How many bytes the records of this many bytes of messages can take."""
    smallest = MIN_BATCH_BYTES[0]
    return message_bytes + message_bytes // smallest * max(_MAX_OVERHEAD - smallest, 0) + SLACK


@device
def _put_field(source, length, source_end, target):
    length = max(length, _NULL)
    target = put_varint(target, length)
    if length > 0:
        target = copy_bytes(source, length, source_end, target)
    return target


@device
def _field_size(length):
    return varint_size(max(length, _NULL)) + max(length, 0)


@kernel(types.void(BYTES, _INT64S, _INT64S, _INT64S, BATCH_ROWS, OUT_BYTES, _INT64S))
def transcribe_messages(data, begins, ends, base_offsets, batches, out, record_ends):
    """Write the records of all messages in data[begins[i]:ends[i]] one after the other, for each batch i.

    Their offsets count from base_offsets[i]. The rows of `batches` are completed: base offset, base timestamp,
    attributes, record count. The records of batch i end at record_ends[i]; one that is left out has a count of -1.
    REQUIRES: the messages were checked; `out` has the room that `room_for` tells.
    """
    source, begin = address_of(data), address_of(out)
    source_end = source + len(data)
    target = begin
    for number in range(len(batches)):
        batch = batches[number]
        position = begins[number]
        start = target
        batch.base_timestamp = 0
        batch.base_offset = base_offsets[number] + load_int64(data, position)
        batch.attributes &= CODEC_MASK if batch.magic == 0 else CODEC_MASK | LOG_APPEND_TIME_BIT
        last_delta = np.int64(-1)
        count = 0
        while position < ends[number]:
            end = position + _PREFIX + np.int64(load_int32(data, position + _AT_LENGTH))
            offset_delta = base_offsets[number] + load_int64(data, position) - batch.base_offset
            if not last_delta < offset_delta <= _INT32_MAX:
                target = start
                count = -1
                break
            last_delta = offset_delta
            timestamp = np.int64(NO_TIMESTAMP)
            if batch.magic > 0:
                timestamp = load_int64(data, position + _AT_TIMESTAMP)
            _, key, key_length, value, value_length = message_fields(data, position, end, batch.magic)
            body_size = 1 + varint_size(timestamp) + varint_size(offset_delta) + 1
            body_size += _field_size(key_length) + _field_size(value_length)
            target = put_varint(target, types.int64(body_size))
            store_byte(target, 0)
            target = put_varint(target + 1, timestamp)
            target = put_varint(target, offset_delta)
            target = _put_field(source + key, key_length, source_end, target)
            target = _put_field(source + value, value_length, source_end, target)
            store_byte(target, 0)
            target += 1
            count += 1
            position = end
        batch.record_count = count
        record_ends[number] = target - begin
