"""Columns to record batches of format v2: where batches begin, then their bytes, then header and checksum.

`plan_batches` fixes the size of every record and the rows of every batch; `write_batches` then writes exactly that many
bytes, so the caller allocates once and nothing here can run out of room. A bitmap marks nulls, as in Arrow. A
record's headers come as one byte string, the end of the record as the format has it, which `encode_headers` makes.

REQUIRES, of all columns: offsets of byte strings ascend and lie within their data; log offsets increase and are
not negative; timestamps are -1 or more. The columnar side checks that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.format.layout import BATCH_V2, LOG_APPEND_TIME_BIT
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.crc import crc32c
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES, OUT_BYTES, store_int16, store_int32, store_int64, store_uint32
from duralog.kernels.writing import address_of, copy_bytes, load_byte, put_varint, store_byte, varint_size

HEADER_BYTES = BATCH_V2.size
MAX_RECORDS_BYTES = 2**31 - 1 - (HEADER_BYTES - BATCH_V2.at.leader_epoch)
"""What the length field of a batch leaves for its records."""
MAX_HEADER_OVERHEAD = 10
"""The two lengths of a record's header."""
MAX_HEADER_COUNT_BYTES = 5

_AT_LENGTH = BATCH_V2.at.length
_AT_LEADER_EPOCH = BATCH_V2.at.leader_epoch
_AT_MAGIC = BATCH_V2.at.magic
_AT_CRC = BATCH_V2.at.crc
_AT_ATTRIBUTES = BATCH_V2.at.attributes
_AT_LAST_OFFSET_DELTA = BATCH_V2.at.last_offset_delta
_AT_BASE_TIMESTAMP = BATCH_V2.at.base_timestamp
_AT_MAX_TIMESTAMP = BATCH_V2.at.max_timestamp
_AT_PRODUCER_ID = BATCH_V2.at.producer_id
_AT_PRODUCER_EPOCH = BATCH_V2.at.producer_epoch
_AT_BASE_SEQUENCE = BATCH_V2.at.base_sequence
_AT_RECORD_COUNT = BATCH_V2.at.record_count

_INT32_MAX = 2**31 - 1
_NULL = -1


class BinaryColumn(NamedTuple):
    """Byte strings as Arrow's `large_binary` holds them: row i is data[offsets[i]:offsets[i + 1]], unless it is null.

    The kernels take read-only arrays.
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    validity: NDArray[np.uint8]
    """A bit for each row, the lowest first, 0 for null. Empty when no row is null."""
    first_bit: int
    """The bit of row 0."""


_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_OUT_INT64S = types.Array(types.int64, 1, "C")
_OUT_INT32S = types.Array(types.int32, 1, "C")
_COLUMN = types.NamedTuple((_INT64S, BYTES, BYTES, types.int64), BinaryColumn)


@device
def _length(start, end, validity, bit):
    """The length of a row's bytes, -1 for null. `validity` is the bitmap's address, 0 when no row is null."""
    length = end - start
    if validity != 0 and not (load_byte(validity + (bit >> 3)) >> (bit & 7)) & 1:
        length = types.int64(_NULL)
    return length


@device
def _field_size(length):
    size = types.int64(1)
    if length > 0:
        size = varint_size(length) + length
    return size


@device
def _put_field(source, length, source_end, target):
    target = put_varint(target, length)
    if length > 0:
        target = copy_bytes(source, length, source_end, target)
    return target


@device
def _bitmap_address(validity):
    return address_of(validity) if len(validity) > 0 else types.int64(0)


@kernel(types.void(_INT64S, _COLUMN, _COLUMN, OUT_BYTES, _OUT_INT64S))
def encode_headers(first_header, key, value, out, section_offsets):
    """The header sections of records: for each row the count of its headers, then keys and values with their lengths.

    Row i has the headers first_header[i] up to first_header[i + 1] of `key` and `value`; its section is
    out[section_offsets[i]:section_offsets[i + 1]]. REQUIRES: no key is null; `out` has room for MAX_HEADER_COUNT_BYTES
    for each row, MAX_HEADER_OVERHEAD for each header, all keys and values, and SLACK.
    """
    key_offsets, key_data = key.offsets, address_of(key.data)
    key_end = key_data + len(key.data)
    value_offsets, value_data = value.offsets, address_of(value.data)
    value_end = value_data + len(value.data)
    value_validity, value_bit = _bitmap_address(value.validity), value.first_bit
    begin = address_of(out)
    target = begin
    section_offsets[0] = 0
    for row in range(len(first_header) - 1):
        first, end = first_header[row], first_header[row + 1]
        target = put_varint(target, end - first)
        for header in range(first, end):
            start = key_offsets[header]
            target = _put_field(key_data + start, key_offsets[header + 1] - start, key_end, target)
            start = value_offsets[header]
            length = _length(start, value_offsets[header + 1], value_validity, value_bit + header)
            target = _put_field(value_data + start, length, value_end, target)
        section_offsets[row + 1] = target - begin


@kernel(
    types.UniTuple(types.int64, 3)(
        _INT64S, _INT64S, _COLUMN, _COLUMN, _COLUMN, types.int64, types.int64, _OUT_INT32S, _OUT_INT64S
    )
)
def plan_batches(offset, timestamp, key, value, headers, batch_bytes, batch_records, body_size, first_row):
    """Which rows go into which batch: (batches, bytes of all records, -1), or (0, 0, row) for a row that is too large.

    Batch b holds the rows first_row[b] up to first_row[b + 1]. It takes as many records as `batch_bytes`,
    `batch_records` and a 32-bit offset delta allow, and at least one. `body_size` is what each record's length field
    will say. REQUIRES: `first_row` has room for one more than there are rows; `headers` has no nulls.
    """
    key_offsets, key_validity, key_bit = key.offsets, _bitmap_address(key.validity), key.first_bit
    value_offsets, value_validity, value_bit = value.offsets, _bitmap_address(value.validity), value.first_bit
    section_offsets = headers.offsets
    batches = 0
    total = 0
    filled = 0
    base_offset = types.int64(0)
    base_timestamp = types.int64(0)
    batch_start = 0
    for row in range(len(offset)):
        key_length = _length(key_offsets[row], key_offsets[row + 1], key_validity, key_bit + row)
        value_length = _length(value_offsets[row], value_offsets[row + 1], value_validity, value_bit + row)
        fields = _field_size(key_length) + _field_size(value_length) + section_offsets[row + 1] - section_offsets[row]
        if max(key_length, value_length, fields) > MAX_RECORDS_BYTES:
            return 0, 0, row
        offset_delta = offset[row] - base_offset
        body = types.int64(0)
        size = types.int64(0)
        fits = False
        if row > 0 and offset_delta <= _INT32_MAX and row - batch_start < batch_records:
            body = 1 + varint_size(timestamp[row] - base_timestamp) + varint_size(offset_delta) + fields
            size = varint_size(body) + body
            fits = filled + size <= batch_bytes
        if not fits:
            base_offset = offset[row]
            base_timestamp = timestamp[row]
            batch_start = row
            first_row[batches] = row
            batches += 1
            body = 3 + fields  # attributes and two deltas of 0
            size = varint_size(body) + body
            if size > MAX_RECORDS_BYTES:
                return 0, 0, row
            filled = 0
        body_size[row] = body
        filled += size
        total += size
    first_row[batches] = len(offset)
    return batches, total, -1


@device
def _put_batch_header(out, batch):
    """The 61 bytes before a batch's records, and the checksum of all. REQUIRES: the records are in their place."""
    position = batch.position
    store_int64(out, position, batch.base_offset)
    store_int32(out, position + _AT_LENGTH, batch.size - _AT_LEADER_EPOCH)
    store_int32(out, position + _AT_LEADER_EPOCH, batch.leader_epoch)
    out[position + _AT_MAGIC] = batch.magic
    store_int16(out, position + _AT_ATTRIBUTES, batch.attributes)
    store_int32(out, position + _AT_LAST_OFFSET_DELTA, batch.last_offset - batch.base_offset)
    store_int64(out, position + _AT_BASE_TIMESTAMP, batch.base_timestamp)
    store_int64(out, position + _AT_MAX_TIMESTAMP, batch.max_timestamp)
    store_int64(out, position + _AT_PRODUCER_ID, batch.producer_id)
    store_int16(out, position + _AT_PRODUCER_EPOCH, batch.producer_epoch)
    store_int32(out, position + _AT_BASE_SEQUENCE, batch.base_sequence)
    store_int32(out, position + _AT_RECORD_COUNT, batch.record_count)
    batch.crc = crc32c(out, position + _AT_ATTRIBUTES, position + batch.size)
    batch.crc_ok = 1
    store_uint32(out, position + _AT_CRC, batch.crc)


@kernel(
    types.void(
        _INT64S,
        _INT64S,
        _COLUMN,
        _COLUMN,
        _COLUMN,
        _OUT_INT32S,
        _OUT_INT64S,
        BATCH_ROWS,
        types.int64,
        types.int64,
        types.boolean,
        OUT_BYTES,
    )
)
def write_batches(
    offset, timestamp, key, value, headers, body_size, first_row, batches, first_batch, end_batch, sealed, out
):
    """Write the planned batches from `first_batch` up to `end_batch`, one after the other, and complete their rows.

    Filled in in `batches`: position, size, offsets, timestamps, count, and the checksum. With log append time the
    maximum timestamp is the one that stands there already. Unless `sealed`, room is left for the headers, but they are
    not written. REQUIRES: `out` has room for HEADER_BYTES for each batch, the planned bytes of its records, and SLACK.
    """
    key_offsets, key_data = key.offsets, address_of(key.data)
    key_end = key_data + len(key.data)
    key_validity, key_bit = _bitmap_address(key.validity), key.first_bit
    value_offsets, value_data = value.offsets, address_of(value.data)
    value_end = value_data + len(value.data)
    value_validity, value_bit = _bitmap_address(value.validity), value.first_bit
    section_offsets, section_data = headers.offsets, address_of(headers.data)
    section_end = section_data + len(headers.data)
    begin = address_of(out)
    target = begin
    for number in range(first_batch, end_batch):
        batch = batches[number]
        first, end = first_row[number], first_row[number + 1]
        base_offset, base_timestamp = offset[first], timestamp[first]
        max_timestamp = base_timestamp
        start = target
        target += HEADER_BYTES
        for row in range(first, end):
            target = put_varint(target, types.int64(body_size[row]))
            store_byte(target, 0)
            target = put_varint(target + 1, timestamp[row] - base_timestamp)
            target = put_varint(target, offset[row] - base_offset)
            source = key_offsets[row]
            length = _length(source, key_offsets[row + 1], key_validity, key_bit + row)
            target = _put_field(key_data + source, length, key_end, target)
            source = value_offsets[row]
            length = _length(source, value_offsets[row + 1], value_validity, value_bit + row)
            target = _put_field(value_data + source, length, value_end, target)
            source = section_offsets[row]
            target = copy_bytes(section_data + source, section_offsets[row + 1] - source, section_end, target)
            max_timestamp = max(max_timestamp, timestamp[row])
        batch.position = start - begin
        batch.size = target - start
        batch.base_offset = base_offset
        batch.last_offset = offset[end - 1]
        batch.base_timestamp = base_timestamp
        if not batch.attributes & LOG_APPEND_TIME_BIT:
            batch.max_timestamp = max_timestamp
        batch.record_count = end - first
        if sealed:
            _put_batch_header(out, batch)


@kernel(types.void(BATCH_ROWS, OUT_BYTES))
def seal_batches(batches, out):
    """Write the headers and checksums of batches whose records are in `out` already, compressed."""
    for number in range(len(batches)):
        _put_batch_header(out, batches[number])
