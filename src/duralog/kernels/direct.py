"""Records of v2 batches straight into the buffers of Arrow arrays: each record is read and copied in one go.

The same records and faults as `duralog.kernels.decode` followed by `duralog.kernels.gather`, for who wants nothing but
Arrow: the positions in between are not written, and columns that were not asked for are checked and not copied. Fields
are copied in vectors that may overshoot. So a batch is taken only if it would fit were it all key or all value, and if
it ends `PADDING` bytes before the end of the data.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import inlined, kernel
from duralog.kernels.decode import MIN_RECORD_BYTES, read_record
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES, OUT_BYTES, VECTOR_BYTES, copy_vector

PADDING = VECTOR_BYTES
NO_HEADERS = -1

_NONE = int(Fault.NONE)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_TRAILING_BYTES = int(Fault.TRAILING_BYTES)

_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")


@inlined
def _clear_bit(bits, row):
    bits[row >> np.uintp(3)] &= ~np.uint8(np.uintp(1) << (row & np.uintp(7)))


@kernel(
    types.Tuple((types.int64,) * 4)(
        *(BYTES, _INT64S, _INT64S, BATCH_ROWS, types.Array(types.intp, 1, "C"), types.int64, types.int64),
        *(_INT64S, _INT64S, _INT64S, _INT32S, _INT32S, OUT_BYTES, OUT_BYTES, _INT32S, OUT_BYTES, OUT_BYTES),
    )
)
def decode_direct(
    data,
    begins,
    ends,
    batches,
    rows,
    max_bytes,
    batch,
    offset,
    timestamp,
    headers_position,
    header_offsets,
    key_offsets,
    key_bits,
    keys,
    value_offsets,
    value_bits,
    values,
):
    """Decode from batch number `batch` of `rows` on. Returns (fault, batch, position, filled).

    With a fault, the batch and position are those of the fault, and the rows filled are those of the batches before.
    Stops, too, in front of a batch that there is no room for, that would make it more than `max_bytes` of records, or
    that ends too near to the end of the data. The bits of nulls are cleared in `key_bits` and `value_bits`.

    Keys, values or headers are left out if their column of offsets is empty. Then their other arrays are not touched.
    Few topics have headers: the two columns of headers are written from the first header on, with those of the rows
    before it. `header_offsets[0]` is 0 then, and `NO_HEADERS` if there was none.

    REQUIRES: 0 <= begins[i] <= ends[i] <= len(data); max_bytes < 2^31; for N rows of `offset` and `timestamp`, and of
    what is not left out, N of `headers_position`, N bits, and N + 1 of the three columns of offsets.
    """
    filled = 0
    used_bytes = 0
    key_end = np.int64(0)
    value_end = np.int64(0)
    header_end = np.int64(0)
    has_keys = len(key_offsets) > 0
    has_values = len(value_offsets) > 0
    has_headers = len(header_offsets) > 0
    if has_keys:
        key_offsets[0] = 0
    if has_values:
        value_offsets[0] = 0
    if has_headers:
        header_offsets[0] = NO_HEADERS
    while batch < len(rows):
        header = batches[rows[batch]]
        count = np.int64(header.record_count)
        position = begins[batch]
        end = ends[batch]
        size = end - position
        if count < 0 or count * MIN_RECORD_BYTES > size:
            return _RECORD_COUNT, batch, position, filled
        used_bytes += size
        if count > len(offset) - filled or used_bytes > max_bytes or end > len(data) - PADDING:
            return _NONE, batch, position, filled
        if has_keys and size > len(keys) - PADDING - key_end:
            return _NONE, batch, position, filled
        if has_values and size > len(values) - PADDING - value_end:
            return _NONE, batch, position, filled
        base_offset = header.base_offset
        base_timestamp = header.base_timestamp
        delta_mask = np.int64(-1)
        if header.attributes & LOG_APPEND_TIME_BIT:
            base_timestamp = header.max_timestamp
            delta_mask = np.int64(0)

        row = np.uintp(filled)  # unsigned: numba asks of a signed index whether it is negative
        for _ in range(count):
            found = read_record(data, position, end)
            fault, record_end, timestamp_delta, offset_delta, key, key_bytes, value, value_bytes, headers, more = found
            if fault != _NONE:
                return fault, batch, position, filled
            position = record_end
            offset[row] = base_offset + offset_delta
            timestamp[row] = base_timestamp + (timestamp_delta & delta_mask)
            if has_keys:
                if key_bytes < 0:
                    _clear_bit(key_bits, row)
                else:
                    for moved in range(0, key_bytes, VECTOR_BYTES):
                        copy_vector(data, key + moved, keys, key_end + moved)
                    key_end += key_bytes
                key_offsets[row + np.uintp(1)] = np.int32(key_end)
            if has_values:
                if value_bytes < 0:
                    _clear_bit(value_bits, row)
                else:
                    for moved in range(0, value_bytes, VECTOR_BYTES):
                        copy_vector(data, value + moved, values, value_end + moved)
                    value_end += value_bytes
                value_offsets[row + np.uintp(1)] = np.int32(value_end)
            if has_headers and (more > 0 or header_end > 0):
                if header_end == 0:
                    for before in range(row):
                        headers_position[before] = 0
                        header_offsets[before] = 0
                    header_offsets[row] = 0
                headers_position[row] = headers
                header_end += more
                header_offsets[row + np.uintp(1)] = np.int32(header_end)
            row += np.uintp(1)
        if position != end:
            return _TRAILING_BYTES, batch, position, filled
        filled += count
        batch += 1
    return _NONE, batch, 0, filled
