"""Batch headers of all three formats, with checksum verdicts: where the batches of a run of bytes lie.

The checks are those of `duralog.format.batches.scan`, in the same order. A wrong checksum is a verdict in the row and
does not stop a scan; an impossible length or magic does, since the start of the next batch is not known then.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import (
    BATCH_V2,
    CODEC_MASK,
    ENTRY_PREFIX,
    MAGIC_POSITION,
    MESSAGE_V0,
    MESSAGE_V1,
    MIN_BATCH_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.compilation.numba_names import from_dtype, types
from duralog.kernels.compile import device, kernel
from duralog.kernels.crc import crc32, crc32c
from duralog.kernels.words import BYTES, load_int16, load_int32, load_int64, load_uint32

BATCH_ROWS = types.Array(from_dtype(BATCH_DTYPE), 1, "C")

_NONE = int(Fault.NONE)
_PARTIAL_BATCH = int(Fault.PARTIAL_BATCH)
_BATCH_LENGTH = int(Fault.BATCH_LENGTH)
_UNKNOWN_MAGIC = int(Fault.UNKNOWN_MAGIC)

_CLASSIFIED_BYTES = MAGIC_POSITION + 1
_MIN_LENGTH = MESSAGE_V0.at.key_length + 8 - ENTRY_PREFIX.size
_MIN_V0, _MIN_V1, _MIN_V2 = MIN_BATCH_BYTES
_PREFIX = ENTRY_PREFIX.size

_AT_LENGTH = ENTRY_PREFIX.at.length
_AT_LEADER_EPOCH = BATCH_V2.at.leader_epoch
_AT_CRC = BATCH_V2.at.crc
_AT_ATTRIBUTES = BATCH_V2.at.attributes
_AT_LAST_OFFSET_DELTA = BATCH_V2.at.last_offset_delta
_AT_BASE_TIMESTAMP = BATCH_V2.at.base_timestamp
_AT_MAX_TIMESTAMP = BATCH_V2.at.max_timestamp
_AT_PRODUCER_ID = BATCH_V2.at.producer_id
_AT_PRODUCER_EPOCH = BATCH_V2.at.producer_epoch
_AT_BASE_SEQUENCE = BATCH_V2.at.base_sequence
_AT_RECORD_COUNT = BATCH_V2.at.record_count

_AT_MESSAGE_CRC = MESSAGE_V0.at.crc
_AT_MESSAGE_ATTRIBUTES = MESSAGE_V0.at.attributes
_AT_MESSAGE_TIMESTAMP = MESSAGE_V1.at.timestamp


@device
def entry_fault(data, position, end):
    """Whether a whole batch or message of a known format starts here: the fault of it, or none."""
    if end - position < _CLASSIFIED_BYTES:
        return _PARTIAL_BATCH
    length = np.int64(load_int32(data, position + _AT_LENGTH))
    if length < _MIN_LENGTH:
        return _BATCH_LENGTH
    if _PREFIX + length > end - position:
        return _PARTIAL_BATCH
    magic = data[position + MAGIC_POSITION]
    if magic > 2:
        return _UNKNOWN_MAGIC
    smallest = _MIN_V2
    if magic == 0:
        smallest = _MIN_V0
    elif magic == 1:
        smallest = _MIN_V1
    if _PREFIX + length < smallest:
        return _BATCH_LENGTH
    return _NONE


@device
def _read_batch(data, position, end, check_crc, row):
    row.base_offset = load_int64(data, position)
    row.leader_epoch = load_int32(data, position + _AT_LEADER_EPOCH)
    row.crc = load_uint32(data, position + _AT_CRC)
    row.attributes = load_int16(data, position + _AT_ATTRIBUTES)
    row.last_offset = row.base_offset + np.int64(load_int32(data, position + _AT_LAST_OFFSET_DELTA))
    row.base_timestamp = load_int64(data, position + _AT_BASE_TIMESTAMP)
    row.max_timestamp = load_int64(data, position + _AT_MAX_TIMESTAMP)
    row.producer_id = load_int64(data, position + _AT_PRODUCER_ID)
    row.producer_epoch = load_int16(data, position + _AT_PRODUCER_EPOCH)
    row.base_sequence = load_int32(data, position + _AT_BASE_SEQUENCE)
    row.record_count = load_int32(data, position + _AT_RECORD_COUNT)
    if check_crc:
        row.crc_ok = crc32c(data, position + _AT_ATTRIBUTES, end) == row.crc


@device
def _read_message(data, position, end, check_crc, row):
    offset = load_int64(data, position)
    attributes = np.int8(data[position + _AT_MESSAGE_ATTRIBUTES])
    is_wrapper = attributes & CODEC_MASK != 0
    timestamp = np.int64(NO_TIMESTAMP)
    if row.magic == 1:
        timestamp = load_int64(data, position + _AT_MESSAGE_TIMESTAMP)
    row.base_offset = -1 if is_wrapper else offset
    row.last_offset = offset
    row.base_timestamp = timestamp
    row.max_timestamp = timestamp
    row.crc = load_uint32(data, position + _AT_MESSAGE_CRC)
    row.attributes = attributes
    row.record_count = -1 if is_wrapper else 1
    row.leader_epoch = NO_LEADER_EPOCH
    row.producer_id = NO_PRODUCER_ID
    row.producer_epoch = NO_PRODUCER_EPOCH
    row.base_sequence = NO_SEQUENCE
    if check_crc:
        row.crc_ok = crc32(data, position + MAGIC_POSITION, end) == row.crc


@kernel(types.Tuple((types.int64, types.int64, types.int64))(BYTES, types.int64, types.boolean, BATCH_ROWS))
def scan_batches(data, base_position, check_crc, rows):
    """Fill `rows` with the batches of `data`; `base_position` is that of data[0] in its file.

    Returns how many rows were filled, where in `data` the scan stopped, and the fault it stopped at: none when the
    rows are full, a partial batch at the end of the bytes.
    """
    position = 0
    end = len(data)
    for count in range(len(rows)):
        fault = entry_fault(data, position, end)
        if fault != _NONE:
            return count, position, fault
        row = rows[count]
        size = _PREFIX + np.int64(load_int32(data, position + _AT_LENGTH))
        row.position = base_position + position
        row.size = size
        row.magic = data[position + MAGIC_POSITION]
        row.crc_ok = -1
        if row.magic == 2:
            _read_batch(data, position, position + size, check_crc, row)
        else:
            _read_message(data, position, position + size, check_crc, row)
        position += size
    return len(rows), position, _NONE
