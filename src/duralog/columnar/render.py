r"""Decoded records as lines of UTF-8 text, without a Python object for each record.

JSON lines, for programs. The fields are always in this order:

    {"offset":5,"timestamp":1000,"timestamp_type":"CreateTime","key":"k1","value":"v1","headers":[{"key":"h","value":"x"}]}

- `timestamp` is in milliseconds, null where the record has none;
- `timestamp_type` is CreateTime, LogAppendTime or NoTimestampType;
- `sequence` follows where the batch has producer sequence numbers, and is left out elsewhere;
- `key`, `value` and the two fields of a header are strings, or null; bytes that are not UTF-8 are in base64, in a
  field named `key_base64` or `value_base64` instead;
- `headers` is a list, in the record's order, empty where there are none.

Text lines, for people:

    | offset 5  2023-11-14T22:13:20.000Z  key "k1"  value "v1"  headers "h"="x" "g"=null

- times are UTC; byte strings are in quotes and null is not; quotes, backslashes, control characters and
  bytes that are not UTF-8 are escaped (\", \\, \n, \r, \t, \xNN);
- of long keys and values only the beginning is shown where the caller asks for that: "abc"…(+123 bytes).

Every line ends with a newline. Control records are records like any other here: bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.kernels import render

DEFAULT_TEXT_PREFIX = b"| "

_LINE_BYTES = 160
"""The approximate size of a line besides its prefix, key, value and headers."""
_LEAST_BYTES = 4096
_UNLIMITED = 2**63 - 1

_Kernel = Callable[[int, NDArray[np.uint8], int], tuple[int, int]]
"""Renders from a row on into an array from a position on; returns the next row and position."""


class LineBuffer:
    """Memory for lines that the next call reuses: fresh memory costs more than the rendering.

    What a call returned is overwritten by the next one with the same buffer.
    """

    def __init__(self) -> None:
        self._out = np.empty(0, np.uint8)

    def fill(self, rows: int, expected_bytes: int, kernel: _Kernel) -> memoryview:
        """Render all lines, of any length."""
        if len(self._out) < expected_bytes:
            self._out = np.empty(expected_bytes, np.uint8)
        row, position = kernel(0, self._out, 0)
        while row < rows:
            larger = np.empty(2 * len(self._out), np.uint8)
            larger[:position] = self._out[:position]
            self._out = larger
            row, position = kernel(row, self._out, position)
        return self._out[:position].data.toreadonly()


def render_json(decoded: DecodedRecords, prefix: bytes = b"", *, buffer: LineBuffer | None = None) -> memoryview:
    """A JSON object a line. `prefix` is put first into each: whole fields, every one with a comma after it."""
    before = np.frombuffer(prefix, np.uint8)
    records = _kernel_arguments(decoded)

    def kernel(row: int, out: NDArray[np.uint8], position: int) -> tuple[int, int]:
        next_row, end = render.render_json(*records, before, row, out, position)
        return next_row, end

    return (buffer or LineBuffer()).fill(len(decoded), _expected_bytes(decoded, prefix), kernel)


def render_text(
    decoded: DecodedRecords,
    prefix: bytes = DEFAULT_TEXT_PREFIX,
    *,
    offset_width: int = 0,
    max_field_bytes: int | None = None,
    buffer: LineBuffer | None = None,
) -> memoryview:
    """A line for people for each record, after `prefix`, the offset right-aligned to `offset_width`.

    Of each key and value `max_field_bytes` are shown, or up to three fewer where a character would be cut.
    """
    if not 0 <= offset_width <= render.MAX_OFFSET_WIDTH:
        raise ValueError(f"offset_width must be from 0 to {render.MAX_OFFSET_WIDTH}, not {offset_width}")
    if max_field_bytes is not None and max_field_bytes < 0:
        raise ValueError(f"max_field_bytes must not be negative: {max_field_bytes}")
    shown_bytes = _UNLIMITED if max_field_bytes is None else min(max_field_bytes, _UNLIMITED)
    before = np.frombuffer(prefix, np.uint8)
    records = _kernel_arguments(decoded)

    def kernel(row: int, out: NDArray[np.uint8], position: int) -> tuple[int, int]:
        next_row, end = render.render_text(*records, before, offset_width, shown_bytes, row, out, position)
        return next_row, end

    return (buffer or LineBuffer()).fill(len(decoded), _expected_bytes(decoded, prefix), kernel)


def _kernel_arguments(decoded: DecodedRecords) -> tuple[NDArray[Any], ...]:
    return (decoded.data, *decoded.columns.arrays, decoded.batch_row, decoded.batches)


def _expected_bytes(decoded: DecodedRecords, prefix: bytes) -> int:
    """Enough for most records; a wrong guess costs time only."""
    columns = decoded.columns
    content = columns.key_length.sum(dtype=np.int64) + columns.value_length.sum(dtype=np.int64)
    return max(_LEAST_BYTES, len(decoded) * (_LINE_BYTES + len(prefix)) + int(content) * 9 // 8)
