"""The keys of v2 batches: offset, position and length, and nothing else of the records.

The records are read and checked as `duralog.kernels.decode` does it, by the same function, so the faults and their
places are the same. A batch is all or nothing.
"""

from __future__ import annotations

import numpy as np

from duralog.errors import Fault
from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import kernel
from duralog.kernels.decode import MIN_RECORD_BYTES, read_record
from duralog.kernels.scan import BATCH_ROWS
from duralog.kernels.words import BYTES

_NONE = int(Fault.NONE)
_RECORD_COUNT = int(Fault.RECORD_COUNT)
_TRAILING_BYTES = int(Fault.TRAILING_BYTES)

_INT64S = types.Array(types.int64, 1, "C")
_INT32S = types.Array(types.int32, 1, "C")


@kernel(
    types.Tuple((types.int64,) * 5)(
        *(BYTES, _INT64S, _INT64S, BATCH_ROWS, types.Array(types.intp, 1, "C"), types.int64, types.int64),
        *(_INT64S, _INT64S, _INT32S, _INT64S),
    )
)
def walk_keys(data, begins, ends, batches, rows, batch, first_offset, offset, key_position, key_length, key_end):
    """Find the keys of the records at or after `first_offset`, from batch number `batch` of `rows` on.

    Returns (fault, batch, position, filled, keyless): how many keys were found, how many records have none, and where
    to go on. `key_end` tells for each batch how many keys were found when it ended. With a fault, the batch and the
    position are those of the fault, and the keys are those of the batches before. Stops, too, in front of a batch
    whose records would not all fit.

    REQUIRES: 0 <= begins[i] <= ends[i] <= len(data); offset, key_position and key_length are of one length.
    """
    filled = np.int64(0)
    keyless = np.int64(0)
    while batch < len(rows):
        header = batches[rows[batch]]
        count = np.int64(header.record_count)
        position = begins[batch]
        end = ends[batch]
        if count < 0 or count * MIN_RECORD_BYTES > end - position:
            return _RECORD_COUNT, batch, position, filled, keyless
        if count > len(offset) - filled:
            return _NONE, batch, position, filled, keyless
        base_offset = header.base_offset
        row = np.uintp(filled)
        without = np.int64(0)
        for _ in range(count):
            fault, record_end, _, offset_delta, key, key_bytes, _, _, _, _ = read_record(data, position, end)
            if fault != _NONE:
                return fault, batch, position, filled, keyless
            position = record_end
            # Written first and kept or overwritten after: whether a record counts is not worth a branch.
            offset[row] = base_offset + offset_delta
            key_position[row] = key
            key_length[row] = key_bytes
            is_due = base_offset + offset_delta >= first_offset
            row += np.uintp(is_due and key_bytes >= 0)
            without += np.int64(is_due and key_bytes < 0)
        if position != end:
            return _TRAILING_BYTES, batch, position, filled, keyless
        filled = np.int64(row)
        keyless += without
        key_end[batch] = filled
        batch += 1
    return _NONE, batch, np.int64(0), filled, keyless
