"""Converts Python records to the columns of the encoding kernels, and checks every value.

No Arrow is involved. A column is made with a few passes over all records, each at the speed of a list comprehension.
Nulls and headers, which most records do not have, take time only if they occur. Invalid records are refused as a whole,
with an `InvalidRecord` that names the first one, counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.encode_columns import WritableColumns
from duralog.errors import InvalidRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record
from duralog.kernels.encode import MAX_HEADER_COUNT_BYTES, MAX_HEADER_OVERHEAD, BinaryColumn, encode_headers
from duralog.kernels.writing import SLACK

_NO_BYTES = np.frombuffer(b"", np.uint8)
_key, _value, _timestamp, _headers = (attrgetter(name) for name in ("key", "value", "timestamp_ms", "headers"))


def record_columns(records: Sequence[Record], *, base_offset: int, default_timestamp_ms: int) -> WritableColumns:
    """The columns of the records, with consecutive offsets. The default replaces a timestamp that is not set."""
    return WritableColumns(
        _frozen(np.arange(base_offset, base_offset + len(records), dtype=np.int64)),
        _timestamps(list(map(_timestamp, records)), default_timestamp_ms),
        _binary(list(map(_key, records)), "key"),
        _binary(list(map(_value, records)), "value"),
        _header_sections(list(map(_headers, records))),
    )


def first_null(column: BinaryColumn) -> int | None:
    """The first row that is null, if any."""
    if not len(column.validity):
        return None
    rows = len(column.offsets) - 1
    valid = np.unpackbits(column.validity, bitorder="little", count=column.first_bit + rows)[column.first_bit :]
    nulls = np.flatnonzero(valid == 0)
    return int(nulls[0]) if len(nulls) else None


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as the kernels' signatures say."""
    array.flags.writeable = False
    return array


def _refuse(row: int, problem: str) -> NoReturn:
    raise InvalidRecord(f"record {row}: {problem}")


def _timestamps(timestamps: list[int], default_ms: int) -> NDArray[np.int64]:
    try:
        times = np.array(timestamps)
    except ValueError:  # Some are lists, or another kind of sequence.
        times = np.empty(0, np.object_)
    # With an explicit type, numpy silently converts fractions and digit strings to integers.
    if times.dtype != np.int64 or times.min(initial=0) < NO_TIMESTAMP:
        for row, timestamp in enumerate(timestamps):
            if not isinstance(timestamp, int) or not NO_TIMESTAMP <= timestamp < 2**63:
                _refuse(row, f"timestamp {timestamp!r} is not a number of milliseconds since 1970, or -1 for none")
        times = np.array(timestamps, np.int64)
    times[times == NO_TIMESTAMP] = default_ms
    return _frozen(times)


def _binary(values: list[bytes | None], name: str) -> BinaryColumn:
    validity = _NO_BYTES
    present: list[bytes] = values  # type: ignore[assignment]
    if None in values:
        is_valid = np.fromiter((value is not None for value in values), np.bool_, len(values))
        validity = _frozen(np.packbits(is_valid, bitorder="little"))
        present = [b"" if value is None else value for value in values]
    try:
        joined = b"".join(present)
    except TypeError:
        for row, value in enumerate(values):
            if not isinstance(value, bytes | bytearray | memoryview | None):
                _refuse(row, f"its {name} is of type {type(value).__name__}, not bytes")
        raise
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=offsets[1:])
    if offsets[-1] != len(joined):
        raise InvalidRecord(f"a {name} is a view of items that are not bytes")
    return BinaryColumn(_frozen(offsets), np.frombuffer(joined, np.uint8), validity, 0)


def _header_sections(headers: list[Sequence[tuple[str, bytes | None]]]) -> BinaryColumn:
    """The count of headers and the headers of each record, encoded."""
    rows = len(headers)
    if not any(headers):
        return BinaryColumn(_frozen(np.arange(rows + 1)), _frozen(np.zeros(rows, np.uint8)), _NO_BYTES, 0)
    first_header = np.zeros(rows + 1, np.int64)
    np.cumsum(np.fromiter(map(len, headers), np.int64, rows), out=first_header[1:])
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for row, of_record in enumerate(headers):
        for header in of_record:
            try:
                key, value = header
                keys.append(key.encode())
            except (AttributeError, TypeError, ValueError) as error:
                _refuse(row, f"header {header!r} is not a pair of text and bytes: {error}")
            if not isinstance(value, bytes | bytearray | None):
                _refuse(row, f"header {key!r} has a value of type {type(value).__name__}, not bytes")
            values.append(value)
    key_column, value_column = _binary(keys, "header key"), _binary(values, "header value")
    content = int(key_column.offsets[-1] + value_column.offsets[-1])
    out = np.empty(content + MAX_HEADER_COUNT_BYTES * rows + MAX_HEADER_OVERHEAD * len(keys) + SLACK, np.uint8)
    sections = np.empty(rows + 1, np.int64)
    encode_headers(_frozen(first_header), key_column, value_column, out, sections)
    return BinaryColumn(_frozen(sections), _frozen(out[: sections[-1]]), _NO_BYTES, 0)
