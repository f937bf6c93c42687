"""From positions and lengths to the buffers of Arrow arrays, and the headers of records as columns of their own.

Fields are copied in vectors that may overshoot: the output needs `PADDING` bytes more than it will hold. Every position
is checked against the data again, so a kernel here is safe with any columns.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import kernel
from duralog.kernels.decode import read_varint
from duralog.kernels.words import BYTES, OUT_BYTES, VECTOR_BYTES, copy_vector

PADDING = VECTOR_BYTES

_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")


@kernel(types.Tuple((types.int64, types.int64))(_INT32S, _INT32S))
def lay_out(lengths, offsets):
    """Arrow offsets for fields of these lengths; a negative one is a null. Returns all bytes and how many nulls.

    The offsets are one more than the lengths. They are right only if all bytes stay below 2^31.
    """
    total = np.int64(0)
    nulls = 0
    offsets[0] = 0
    for row in range(len(lengths)):
        length = lengths[row]
        nulls += length < 0
        total += max(length, 0)
        offsets[row + 1] = np.int32(total)
    return total, nulls


@kernel(types.int64(BYTES, _INT64S, _INT32S, OUT_BYTES))
def gather(data, positions, lengths, out):
    """Copy the fields one after the other, the nulls left out. Returns how many rows were copied.

    Fewer than there are: the next row's bytes do not lie within `data`, or `out` has no room for them.
    """
    target = 0
    room = len(out) - PADDING
    end = len(data)
    for row in range(len(positions)):
        length = np.int64(lengths[row])
        if length > 0:
            position = positions[row]
            if position < 0 or position > end - length or length > room - target:
                return row
            if position + length + PADDING <= end:
                for moved in range(0, length, VECTOR_BYTES):
                    copy_vector(data, position + moved, out, target + moved)
            else:
                for moved in range(length):
                    out[target + moved] = data[position + moved]
            target += length
    return len(positions)


@kernel(types.int64(BYTES, _INT64S, _INT32S, _INT64S, _INT32S, _INT64S, _INT32S))
def list_headers(data, headers_position, header_count, key_position, key_length, value_position, value_length):
    """The headers of all records, one row each. Returns how many rows were filled.

    REQUIRES: the records were decoded from `data`. Stops at a header that does not lie within it.
    """
    filled = 0
    for row in range(len(headers_position)):
        position = headers_position[row]
        if position < 0 or header_count[row] > len(key_position) - filled:
            return filled
        for _ in range(header_count[row]):
            length, position = read_varint(data, position, len(data))
            if position < 0 or length < 0 or length > len(data) - position:
                return filled
            key_position[filled] = position
            key_length[filled] = length
            length, position = read_varint(data, position + length, len(data))
            if position < 0 or length > len(data) - position:
                return filled
            value_position[filled] = position
            value_length[filled] = max(length, -1)
            position += max(length, 0)
            filled += 1
    return filled
