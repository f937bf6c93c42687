"""Which batches of a segment are in order, and which of them its two indexes name.

The rule is `duralog.format.index_entries.IndexRule`'s, over the rows of a scan at once: rebuilding the indexes of a
segment takes no longer than finding its batches.
"""

from __future__ import annotations

import numpy as np

from duralog.kernels.compilation.numba_names import types
from duralog.kernels.compile import device, kernel
from duralog.kernels.scan import BATCH_ROWS

BYTES_SINCE_ENTRY, LARGEST_TIMESTAMP, LARGEST_OFFSET, LAST_TIMESTAMP, LAST_OFFSET = range(5)
"""What `index_batches` remembers from call to call, as places in its `state`:

the bytes since the last entry, the largest timestamp and the last offset of the first batch that reaches it, the
timestamp of the last entry in the time index, and the last offset of the last batch."""

_INT32_MAX = 2**31 - 1


@device
def _continues(row, last_offset):
    """Whether a batch's offsets are in order, and lie above this one."""
    first = row.base_offset if row.magic == 2 else row.last_offset
    return last_offset < first <= row.last_offset


@kernel(types.int64(BATCH_ROWS, types.int64, types.int64))
def count_in_order(rows, last_offset, limit):
    """How many of the rows, from the first on, have offsets above the one before, and not above the limit.

    `last_offset` is that before the first row.
    """
    for index in range(len(rows)):
        row = rows[index]
        if not _continues(row, last_offset) or row.last_offset > limit:
            return index
        last_offset = row.last_offset
    return len(rows)


@kernel(
    types.Tuple((types.int64, types.int64, types.int64))(
        BATCH_ROWS,
        types.int64,
        types.int64,
        types.int64[::1],
        types.int32[:, ::1],
        types.int64[::1],
        types.int32[::1],
    )
)
def index_batches(rows, base_offset, interval_bytes, state, offset_entries, timestamps, timestamp_offsets):
    """Go over the rows up to the first one that is corrupt or out of order.

    A batch is in order if its offsets lie above those of the batch before it, and within 32 bits of the segment's base.
    Returns how many rows are, and how many entries they gave each index: rows of (relative offset, position) in
    `offset_entries`; `timestamps` and relative `timestamp_offsets`.
    """
    offset_count = 0
    time_count = 0
    for index in range(len(rows)):
        row = rows[index]
        if row.crc_ok == 0 or not _continues(row, state[LAST_OFFSET]) or row.last_offset - base_offset > _INT32_MAX:
            return index, offset_count, time_count
        state[LAST_OFFSET] = row.last_offset
        if row.max_timestamp > state[LARGEST_TIMESTAMP]:
            state[LARGEST_TIMESTAMP] = row.max_timestamp
            state[LARGEST_OFFSET] = row.last_offset
        # No position above 2 GiB fits an entry. Kafka makes no segment that large.
        if state[BYTES_SINCE_ENTRY] > interval_bytes and row.position <= _INT32_MAX:
            offset_entries[offset_count, 0] = np.int32(row.last_offset - base_offset)
            offset_entries[offset_count, 1] = np.int32(row.position)
            offset_count += 1
            if state[LARGEST_TIMESTAMP] > state[LAST_TIMESTAMP]:
                state[LAST_TIMESTAMP] = state[LARGEST_TIMESTAMP]
                timestamps[time_count] = state[LARGEST_TIMESTAMP]
                timestamp_offsets[time_count] = np.int32(state[LARGEST_OFFSET] - base_offset)
                time_count += 1
            state[BYTES_SINCE_ENTRY] = 0
        state[BYTES_SINCE_ENTRY] += row.size
    return len(rows), offset_count, time_count
