"""Which partition each row goes to.

A row's own partition comes first. Else a key decides, by Kafka's default partitioner: murmur2 of the key's bytes. Rows
without a key go to one partition for as many bytes as a batch takes, then to the next, as Kafka's producer does it for
the sake of full batches. It starts at a random one; here it is the task's number, and the place of the row in its task
decides all else. So a repeated task makes the same choices, also if its rows come in other batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.kernels.encode import BinaryColumn
from duralog.kernels.key_partitions import partitions_of_keys

_RECORD_OVERHEAD = 8
"""About what a record takes in addition to its value."""
UNDECIDED = -1


class Partitioner:
    """The choices of one task, row after row."""

    def __init__(self, task: int, batch_bytes: int) -> None:
        self._task = task
        self._batch_bytes = batch_bytes
        self._keyless_bytes = 0

    def choose(
        self,
        counts: NDArray[np.int32],
        key: BinaryColumn,
        has_key: NDArray[np.bool_],
        value: BinaryColumn,
        given: NDArray[np.int32] | None,
    ) -> NDArray[np.int32]:
        """The partition of each row, out of `counts` of them; `given` has the rows' own ones, `UNDECIDED` for none."""
        chosen = np.full(len(counts), UNDECIDED, np.int32) if given is None else given.copy()
        keyless = np.flatnonzero(~has_key & (chosen == UNDECIDED))
        if len(keyless):
            sizes = np.diff(value.offsets)[keyless] + _RECORD_OVERHEAD
            ends = self._keyless_bytes + np.cumsum(sizes)
            self._keyless_bytes = int(ends[-1])
            chosen[keyless] = (self._task + (ends - sizes) // self._batch_bytes) % counts[keyless]
        if len(keyless) < len(counts):
            partitions_of_keys(key.offsets, key.data, _frozen(counts), chosen)
        return chosen


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array
