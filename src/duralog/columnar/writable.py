"""Converts an Arrow table to the columns of the encoding kernels, and checks every value.

These columns of the table are read, others are ignored:

- `value`, and `key` if there is one: binary or string, of any of Arrow's kinds;
- `timestamp`, optional: any unit and zone, or int64 milliseconds; finer ones are rounded down; null or -1 ms is none;
- `headers`, optional: list<struct<key, value>>; null means no headers; a null key is refused, a null value is not;
- `offset`, optional: int64, increasing, with gaps where the log has some. Without it the offsets are consecutive.

Invalid input is refused as a whole, with an `InvalidRecord` that names the column and the row. How the table is cut
into chunks does not change the bytes.

Arrow arrays can be sliced, chunked, of several widths, and carry offsets that another program wrote. The result is one
run of each column, widened to 64-bit offsets, and safe for kernels that check nothing. Data is copied only if chunks
must be joined.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.encode_columns import WritableColumns
from duralog.columnar.schema import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from duralog.errors import InvalidRecord
from duralog.format.layout import NO_TIMESTAMP
from duralog.kernels.encode import MAX_HEADER_COUNT_BYTES, MAX_HEADER_OVERHEAD, BinaryColumn, encode_headers
from duralog.kernels.writing import SLACK

_INT64_MAX = 2**63 - 1
_UNITS_PER_MS = {"us": 1_000, "ns": 1_000_000}
_NO_BYTES = np.frombuffer(b"", np.uint8)


def writable_columns(
    table: pa.Table | pa.RecordBatch, *, base_offset: int, default_timestamp_ms: int = NO_TIMESTAMP
) -> WritableColumns:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    rows = table.num_rows
    key = _column(table, KEY)
    value = _column(table, VALUE)
    if value is None:
        raise InvalidRecord(f"column value: expected binary or string, found only the columns {table.column_names}")
    return WritableColumns(
        _offsets(_column(table, OFFSET), rows, base_offset),
        _timestamps(_column(table, TIMESTAMP), rows, default_timestamp_ms),
        binary_column(pa.chunked_array([pa.nulls(rows)]) if key is None else key, KEY),
        binary_column(value, VALUE),
        _headers(_column(table, HEADERS), rows),
    )


def _refuse(column: str, row: int | None, expected: object, found: object) -> NoReturn:
    reason = f"expected {expected}, found {found}"
    if row is None:
        raise InvalidRecord(f"column {column}: {reason}")
    raise InvalidRecord(f"column {column}, row {row}: {reason}", record_errors=[(row, f"column {column}: {reason}")])


def _column(table: pa.Table, name: str) -> pa.ChunkedArray | None:
    found = table.schema.get_all_field_indices(name)
    if len(found) > 1:
        _refuse(name, None, "one column of this name", len(found))
    return table.column(found[0]) if found else None


def _one_array(chunked: pa.ChunkedArray) -> pa.Array:
    return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Aligned and read-only, as the kernels' signatures say."""
    array = np.require(array, requirements=["C", "A"])
    array.flags.writeable = False
    return array


def _int64s(array: pa.Array) -> NDArray[np.int64]:
    """The values of an int64 array without nulls."""
    return _frozen(array.to_numpy(zero_copy_only=True))


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
        or _is_string(kind)
        or pa.types.is_null(kind)
    )


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def binary_column(chunked: pa.ChunkedArray, name: str) -> BinaryColumn:
    """Byte strings for the kernels, every position checked. `name` is what errors call the column."""
    kind = chunked.type
    if not _is_bytes(kind):
        _refuse(name, None, "binary or string", kind)
    if pa.types.is_dictionary(kind):
        chunked = chunked.cast(kind.value_type)
    array = _one_array(chunked.cast(pa.large_binary()))
    validity, offsets, data = array.buffers()
    if len(array) == 0:
        positions = np.zeros(1, np.int64)
    else:
        positions = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    column = BinaryColumn(
        offsets=_frozen(positions),
        data=_NO_BYTES if data is None else _frozen(np.frombuffer(data, np.uint8)),
        validity=_frozen(np.frombuffer(validity, np.uint8)) if array.null_count else _NO_BYTES,
        first_bit=array.offset,
    )
    _check_positions(column.offsets, len(column.data), name)
    return column


def _check_positions(positions: NDArray[np.int64], size: int, name: str) -> None:
    """Arrow does not look at the offsets of arrays that come from a file or from another program."""
    if positions[0] < 0 or positions[-1] > size or np.any(positions[1:] < positions[:-1]):
        _refuse(name, None, f"ascending positions up to {size}", "a damaged Arrow array")


def _offsets(chunked: pa.ChunkedArray | None, rows: int, base_offset: int) -> NDArray[np.int64]:
    if chunked is None:
        if base_offset < 0 or base_offset + max(rows - 1, 0) > _INT64_MAX:
            raise InvalidRecord(f"{rows} offsets from {base_offset} on are not within 0 to {_INT64_MAX}")
        return _frozen(np.arange(rows, dtype=np.int64) + np.int64(base_offset))
    if not pa.types.is_int64(chunked.type):
        _refuse(OFFSET, None, "int64", chunked.type)
    if chunked.null_count:
        _refuse(OFFSET, _first(chunked.is_null()), "an offset", "null")
    offsets = _int64s(_one_array(chunked))
    if rows and offsets[0] < 0:
        _refuse(OFFSET, 0, "0 or more", offsets[0])
    not_larger = np.flatnonzero(offsets[1:] <= offsets[:-1])
    if len(not_larger):
        row = int(not_larger[0]) + 1
        _refuse(OFFSET, row, f"more than {offsets[row - 1]}", offsets[row])
    return offsets


def _timestamps(chunked: pa.ChunkedArray | None, rows: int, default_ms: int) -> NDArray[np.int64]:
    if not NO_TIMESTAMP <= default_ms <= _INT64_MAX:
        raise InvalidRecord(f"the default timestamp {default_ms} is not within {NO_TIMESTAMP} to {_INT64_MAX}")
    if chunked is None or pa.types.is_null(chunked.type):
        return _frozen(np.full(rows, default_ms, np.int64))
    kind = chunked.type
    if not (pa.types.is_int64(kind) or pa.types.is_timestamp(kind)):
        _refuse(TIMESTAMP, None, "timestamp or int64 milliseconds", kind)
    missing = chunked.is_null() if chunked.null_count else None
    units = pa.types.is_timestamp(kind) and _UNITS_PER_MS.get(kind.unit)
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        try:
            chunked = chunked.cast(pa.timestamp("ms", kind.tz))
        except pa.ArrowInvalid as error:
            _refuse(TIMESTAMP, None, "seconds that fit int64 milliseconds", error)
    times = _int64s(_one_array(chunked.cast(pa.int64()).fill_null(0)))
    if units:
        times = np.floor_divide(times, units)
    too_early = np.flatnonzero(times < NO_TIMESTAMP)
    if len(too_early):
        row = int(too_early[0])
        _refuse(TIMESTAMP, row, "1970 or later", f"{times[row]} ms")
    if missing is not None:
        times = np.where(_one_array(missing).to_numpy(zero_copy_only=False), np.int64(default_ms), times)
    return _frozen(times)


def _headers(chunked: pa.ChunkedArray | None, rows: int) -> BinaryColumn:
    if chunked is None or pa.types.is_null(chunked.type):
        sections = np.arange(rows + 1, dtype=np.int64)
        return BinaryColumn(_frozen(sections), _frozen(np.zeros(rows, np.uint8)), _NO_BYTES, 0)
    fields = _header_fields(chunked.type)
    counts = pa.chunked_array([pc.list_value_length(chunk).cast(pa.int64()) for chunk in chunked.chunks], pa.int64())
    first_header = np.zeros(rows + 1, np.int64)
    np.cumsum(_int64s(_one_array(counts.fill_null(0))), out=first_header[1:])
    flat = [chunk.flatten() for chunk in chunked.chunks]
    structs = pa.chunked_array(flat, chunked.type.value_type)
    _check_positions(first_header, len(structs), HEADERS)
    if structs.null_count:
        _refuse_header(structs, first_header, "a header")
    keys, values = (pa.chunked_array([chunk.field(name) for chunk in flat], kind) for name, kind in fields.items())
    if keys.null_count:
        _refuse_header(keys, first_header, "a header key")
    key, value = binary_column(keys, "headers (key)"), binary_column(values, "headers (value)")
    content = sum(int(column.offsets[-1] - column.offsets[0]) for column in (key, value))
    framing = MAX_HEADER_COUNT_BYTES * rows + MAX_HEADER_OVERHEAD * len(structs)
    out = np.empty(content + framing + SLACK, np.uint8)
    sections = np.empty(rows + 1, np.int64)
    encode_headers(_frozen(first_header), key, value, out, sections)
    return BinaryColumn(_frozen(sections), _frozen(out[: sections[-1]]), _NO_BYTES, 0)


def _header_fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    expected = "list<struct<key: string, value: binary>>"
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        _refuse(HEADERS, None, expected, kind)
    fields = {}
    for name in ("key", "value"):
        index = kind.value_type.get_field_index(name)
        if index < 0 or not _is_bytes(kind.value_type.field(index).type):
            _refuse(HEADERS, None, expected, kind)
        fields[name] = kind.value_type.field(index).type
    return fields


def _refuse_header(flat: pa.ChunkedArray, first_header: NDArray[np.int64], expected: str) -> NoReturn:
    row = int(np.searchsorted(first_header, _first(flat.is_null()), side="right")) - 1
    _refuse(HEADERS, row, expected, "null")


def _first(true: pa.ChunkedArray) -> int:
    """The first row that is true."""
    return int(pc.index(true, True).as_py())
