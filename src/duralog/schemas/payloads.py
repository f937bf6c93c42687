"""What decoders of single formats have in common: payloads as positions in a buffer in, a column and reasons out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded column."""

    values: pa.Array
    """Null where the payload is null or bad."""
    reasons: pa.Array
    """Why a payload is bad, as text; null where it is good or null."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Fields of JSON that the column's type does not have, with dots, and how often they were there."""


class Payloads(Protocol):
    """Decodes payloads of one format and one schema. All bounds are checked."""

    arrow_type: pa.DataType

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        """The payloads at these positions of the buffer, in this order."""


def good(values: pa.Array) -> Decoded:
    """Decoded, with nothing wrong."""
    return Decoded(values, no_reasons(len(values)))


MOST_LEFT_OUT = 50
"""Names of fields that are counted."""
OTHERS_LEFT_OUT = "(others)"


def count_left_out(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of the counts of fields that were left out, for a limited number of names; the others together."""
    found: Counter[str] = Counter()
    for each in counts:
        for name, count in each.items():
            found[name if name in found or len(found) < MOST_LEFT_OUT else OTHERS_LEFT_OUT] += count
    return dict(found)


def no_reasons(count: int) -> pa.Array:
    """A null for each row."""
    return pa.nulls(count, pa.string())


def in_order(parts: Sequence[tuple[Int64s, Decoded]], count: int, type_: pa.DataType) -> Decoded:
    """The groups' results as one column; rows of no group are null."""
    if not parts:
        return Decoded(pa.nulls(count, type_), no_reasons(count))
    places = np.full(count, -1, np.int64)
    rows = np.concatenate([rows for rows, _ in parts])
    places[rows] = np.arange(len(rows))
    order = pa.array(places, mask=places < 0)
    values = pa.concat_arrays([decoded.values for _, decoded in parts]).take(order)
    reasons = pa.concat_arrays([decoded.reasons for _, decoded in parts]).take(order)
    return Decoded(values, reasons, count_left_out(decoded.left_out for _, decoded in parts))


def reasons_of(codes: npt.NDArray[np.integer], texts: dict[int, str]) -> pa.Array:
    """The texts of codes; null where the code is 0."""
    if not codes.any():
        return no_reasons(len(codes))
    found, inverse = np.unique(codes, return_inverse=True)
    return pa.array([texts[int(code)] if code else None for code in found], pa.string()).take(pa.array(inverse))


def binary_column(data: Bytes, starts: Int64s, ends: Int64s) -> pa.Array:
    """The payloads as a column; copies them only if there are others between them."""
    count = len(starts)
    if count == 0:
        return pa.array([], pa.large_binary())
    offsets = np.empty(count + 1, np.int64)
    if (starts[1:] == ends[:-1]).all():
        offsets[:-1], offsets[-1] = starts, ends[-1]
        return _large_binary(offsets, data)
    if (starts[1:] >= ends[:-1]).all():
        # A column of payload, gap, payload, gap, ... of which every second is taken: memory is copied in runs.
        bounds = np.empty(2 * count, np.int64)
        bounds[0::2], bounds[1::2] = starts, ends
        return _large_binary(bounds, data).take(pa.array(np.arange(0, 2 * count - 1, 2)))
    lengths = ends - starts
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    return _large_binary(offsets, data[places])


def _large_binary(offsets: Int64s, data: Bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
