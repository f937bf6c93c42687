"""What an append has to know of a batch that a client sent, in one call: is it whole and sound, and what is in it.

Nothing is decided here and nothing is changed: the rules of a topic are in `duralog.storage.append.validation`. The
checks are those of `duralog.kernels.scan` and `duralog.kernels.decode`, in the same order, for the same faults.

The walk over the fields of a record stands here a second time. As one function for both kernels it made decoding a
quarter slower; that both agree with the reference on any bytes is tested.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import BATCH_V2, CODEC_MASK, ENTRY_PREFIX, LOG_APPEND_TIME_BIT, MAGIC_POSITION, NO_TIMESTAMP
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.crc import crc32c
from duralog.kernels.decode import MIN_RECORD_BYTES, read_varint, read_varlong, skip_headers
from duralog.kernels.scan import entry_fault
from duralog.kernels.words import BYTES, load_int16, load_int32, load_int64, load_uint32

CONSECUTIVE = 1
"""Bit of `traits`: the offset deltas are 0, 1, 2 and so on."""
CANONICAL = 2
"""Bit of `traits`: the timestamp deltas start at 0 and no record has attributes, as in a batch that is rebuilt."""
WITHOUT_KEY = 4
"""Bit of `traits`: at least one record has no key."""

_INT64_MAX = 2**63 - 1
_NONE = int(Fault.NONE)
_CRC_MISMATCH = int(Fault.CRC_MISMATCH)
_UNKNOWN_MAGIC = int(Fault.UNKNOWN_MAGIC)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_VARINT = int(Fault.VARINT)
_RECORD_LENGTH = int(Fault.RECORD_LENGTH)
_FIELD_LENGTH = int(Fault.FIELD_LENGTH)
_HEADER_COUNT = int(Fault.HEADER_COUNT)
_RECORD_NOT_CONSUMED = int(Fault.RECORD_NOT_CONSUMED)
_TRAILING_BYTES = int(Fault.TRAILING_BYTES)

_PREFIX = ENTRY_PREFIX.size
_HEADER = BATCH_V2.size
_AT_LENGTH = BATCH_V2.at.length
_AT_CRC = BATCH_V2.at.crc
_AT_ATTRIBUTES = BATCH_V2.at.attributes
_AT_BASE_TIMESTAMP = BATCH_V2.at.base_timestamp
_AT_MAX_TIMESTAMP = BATCH_V2.at.max_timestamp
_AT_RECORD_COUNT = BATCH_V2.at.record_count


@device
def _walk(data, position, end, count, base_timestamp, delta_mask):
    """Of the records in data[position:end]: fault, its position, smallest timestamp, largest timestamp, traits.

    A timestamp of -1 is none and does not count: both are -1 where there is no other. The largest is -1 at least. With
    a fault, the others mean nothing.
    """
    smallest = np.int64(_INT64_MAX)
    largest = np.int64(NO_TIMESTAMP)
    fault = np.int64(_NONE)
    unexpected_offset = np.int64(0)
    uncanonical = np.int64(0)
    without_key = np.int64(0)
    start = position
    record = np.int64(0)
    if count < 0 or count * MIN_RECORD_BYTES > end - position:
        fault = _RECORD_COUNT
        count = record
    while record < count:
        start = position
        length, position = read_varint(data, position, end)
        if position < 0:
            fault = _VARINT
            break
        if length < 0 or length > end - position:
            fault = _RECORD_LENGTH
            break
        record_end = position + length
        if length == 0:
            fault = _FIELD_LENGTH
            break
        uncanonical |= data[position]
        timestamp_delta, position = read_varlong(data, position + 1, record_end)
        if position < 0:
            fault = _VARINT
            break
        offset_delta, position = read_varint(data, position, record_end)
        if position < 0:
            fault = _VARINT
            break
        key_bytes, position = read_varint(data, position, record_end)
        if position < 0:
            fault = _VARINT
            break
        if key_bytes > record_end - position:
            fault = _FIELD_LENGTH
            break
        value_bytes, position = read_varint(data, position + max(key_bytes, 0), record_end)
        if position < 0:
            fault = _VARINT
            break
        if value_bytes > record_end - position:
            fault = _FIELD_LENGTH
            break
        headers, position = read_varint(data, position + max(value_bytes, 0), record_end)
        if position < 0:
            fault = _VARINT
            break
        if headers < 0 or headers > record_end - position:
            fault = _HEADER_COUNT
            break
        if headers > 0:
            fault, position = skip_headers(data, position, record_end, headers)
            if fault != _NONE:
                break
        if position != record_end:
            fault = _RECORD_NOT_CONSUMED
            break

        timestamp = base_timestamp + (timestamp_delta & delta_mask)
        if timestamp != NO_TIMESTAMP:
            smallest = min(smallest, timestamp)
            largest = max(largest, timestamp)
        if record == 0:
            uncanonical |= timestamp_delta
        unexpected_offset |= offset_delta ^ record
        without_key |= key_bytes
        record += 1
    if smallest > largest:
        smallest = np.int64(NO_TIMESTAMP)
    if fault == _NONE and position != end:
        fault = _TRAILING_BYTES
        start = position
    traits = np.int64(0)
    if unexpected_offset == 0:
        traits |= CONSECUTIVE
    if uncanonical == 0:
        traits |= CANONICAL
    if without_key < 0:
        traits |= WITHOUT_KEY
    return fault, start, smallest, largest, traits


@kernel(types.UniTuple(types.int64, 7)(BYTES, types.int64))
def inspect_batch(data, position):
    """The batch at `position`: (fault, its position, smallest, largest, traits, size, checksum).

    The fault is that of a scan, an unknown format if the batch is not v2, a wrong checksum (the computed one is
    returned), or one of the records'. The records of a compressed batch are not read: see `inspect_records`.
    """
    nothing = np.int64(0)
    fault = np.int64(entry_fault(data, position, len(data)))
    if fault != _NONE:
        return fault, position, nothing, nothing, nothing, nothing, nothing
    size = _PREFIX + np.int64(load_int32(data, position + _AT_LENGTH))
    if data[position + MAGIC_POSITION] != 2:
        return np.int64(_UNKNOWN_MAGIC), position, nothing, nothing, nothing, size, nothing
    end = position + size
    checksum = np.int64(crc32c(data, position + _AT_ATTRIBUTES, end))
    if checksum != np.int64(load_uint32(data, position + _AT_CRC)):
        return np.int64(_CRC_MISMATCH), position, nothing, nothing, nothing, size, checksum
    attributes = load_int16(data, position + _AT_ATTRIBUTES)
    if attributes & CODEC_MASK:
        return np.int64(_NONE), position, nothing, nothing, nothing, size, checksum
    base_timestamp = load_int64(data, position + _AT_BASE_TIMESTAMP)
    delta_mask = np.int64(-1)
    if attributes & LOG_APPEND_TIME_BIT:
        base_timestamp = load_int64(data, position + _AT_MAX_TIMESTAMP)
        delta_mask = np.int64(0)
    count = np.int64(load_int32(data, position + _AT_RECORD_COUNT))
    fault, where, smallest, largest, traits = _walk(data, position + _HEADER, end, count, base_timestamp, delta_mask)
    return fault, where, smallest, largest, traits, size, checksum


@kernel(types.UniTuple(types.int64, 5)(BYTES, types.int64, types.int64, types.int64))
def inspect_records(data, count, base_timestamp, delta_mask):
    """The same of `count` records, decompressed. `delta_mask` is 0 where all have the base timestamp, else -1."""
    return _walk(data, 0, len(data), count, base_timestamp, delta_mask)
