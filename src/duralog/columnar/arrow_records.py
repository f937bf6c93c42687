"""Decoded records as Arrow record batches, without a Python object for any record.

Numbers are passed on as they are, keys and values are gathered into one buffer for each column. Every batch has the
types of `RECORD_SCHEMA`, even if a column is null or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar import schema
from duralog.columnar.decoded import CHUNK_RECORDS, ArrowBinary, DecodedRecords, GatheredRecords
from duralog.format.layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from duralog.format.record import TimestampType
from duralog.kernels.gather import PADDING, gather, lay_out, list_headers

_INT32_MAX = 2**31 - 1
_NO_TYPE, _CREATE_TIME, _LOG_APPEND_TIME = map(
    np.int8, (TimestampType.NONE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)
)
_NO_HEADERS = pa.array([], schema.HEADER_TYPE)


def to_record_batch(
    records: DecodedRecords | GatheredRecords,
    *,
    topic: str | None,
    partition: int | None,
    columns: Sequence[str] | None,
) -> pa.RecordBatch:
    chosen = schema.record_schema(None if columns is None else tuple(columns))
    arrays = []
    for name in chosen.names:
        if name == schema.TOPIC:
            arrays.append(_constant(topic, pa.string(), len(records)))
        elif name == schema.PARTITION:
            arrays.append(_constant(partition, pa.int32(), len(records)))
        elif isinstance(records, GatheredRecords):
            arrays.append(_gathered_column(name, records))
        else:
            arrays.append(_decoded_column(name, records))
    return pa.RecordBatch.from_arrays(arrays, schema=chosen)


def _decoded_column(name: str, records: DecodedRecords) -> pa.Array:
    decoded = records.columns
    if name == schema.OFFSET:
        return _offsets(decoded.offset)
    if name == schema.TIMESTAMP:
        return _timestamps(decoded.timestamp)
    if name == schema.TIMESTAMP_TYPE:
        types = _types_of(records.batches)
        return _timestamp_types(types, len(records), lambda: types[records.batch_row])
    if name == schema.KEY:
        return _bytes(pa.binary(), records.data, decoded.key_position, decoded.key_length)
    if name == schema.VALUE:
        return _bytes(pa.binary(), records.data, decoded.value_position, decoded.value_length)
    assert name == schema.HEADERS
    offsets = np.empty(len(records) + 1, np.int32)
    total, _ = lay_out(decoded.header_count, offsets)
    if total > _INT32_MAX:
        raise ValueError(f"{total} headers are too many for one Arrow array")
    return _headers(records.data, decoded.headers_position, offsets)


def _gathered_column(name: str, records: GatheredRecords) -> pa.Array:
    if name == schema.OFFSET:
        return _offsets(records.offset)
    if name == schema.TIMESTAMP:
        return _timestamps(records.timestamp)
    if name == schema.TIMESTAMP_TYPE:
        types, counts = _types_of(records.batches), records.batches["record_count"]
        rows = records.rows
        return _timestamp_types(types, len(records), lambda: np.repeat(types[rows], counts[rows]))
    if name == schema.KEY:
        assert records.keys is not None
        return _binary(records.keys)
    if name == schema.VALUE:
        assert records.values is not None
        return _binary(records.values)
    assert name == schema.HEADERS
    return _headers(records.data, records.headers_position, records.header_offsets)


def _offsets(offset: NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(offset), [None, pa.py_buffer(offset)])


@lru_cache(maxsize=16)
def _repeated(value: str | int | None, type_: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), count)


def _constant(value: str | int | None, type_: pa.DataType, count: int) -> pa.Array:
    """One array for all chunks of a partition, cut to size."""
    return _repeated(value, type_, max(count, CHUNK_RECORDS)).slice(0, count)


def _validity(is_valid: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def _timestamps(timestamp: NDArray[np.int64]) -> pa.Array:
    validity = None
    if timestamp.min(initial=0) <= NO_TIMESTAMP:  # else none is missing
        validity = _validity(timestamp != NO_TIMESTAMP)
    type_ = schema.RECORD_SCHEMA.field(schema.TIMESTAMP).type
    return pa.Array.from_buffers(type_, len(timestamp), [validity, pa.py_buffer(timestamp)])


def _types_of(batches: NDArray[Any]) -> NDArray[np.int8]:
    """The timestamp type of each batch."""
    types = np.where(batches["attributes"] & LOG_APPEND_TIME_BIT, _LOG_APPEND_TIME, _CREATE_TIME)
    types[batches["magic"] == 0] = _NO_TYPE
    return types


def _timestamp_types(of_batches: NDArray[np.int8], count: int, of_records: Callable[[], NDArray[np.int8]]) -> pa.Array:
    if (of_batches == of_batches[0]).all():
        return _constant(int(of_batches[0]), pa.int8(), count)
    return pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(of_records())])


def _binary(fields: ArrowBinary) -> pa.Array:
    validity = None if (fields.validity == 0xFF).all() else pa.py_buffer(fields.validity)
    buffers = [validity, pa.py_buffer(fields.offsets), pa.py_buffer(fields.content)]
    return pa.Array.from_buffers(pa.binary(), len(fields.offsets) - 1, buffers)


def _bytes(
    type_: pa.DataType, data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]
) -> pa.Array:
    offsets = np.empty(len(lengths) + 1, np.int32)
    total, nulls = lay_out(lengths, offsets)
    if total > _INT32_MAX:
        raise ValueError(f"{total} bytes are too many for one Arrow array of type {type_}")
    out = np.empty(total + PADDING, np.uint8)
    if gather(data, positions, lengths, out) != len(positions):
        raise ValueError("the records do not lie within the data that they came from")
    validity = _validity(lengths >= 0) if nulls else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out[:total])]
    return pa.Array.from_buffers(type_, len(lengths), buffers, null_count=nulls)


def _headers(data: NDArray[np.uint8], positions: NDArray[np.int64], offsets: NDArray[np.int32]) -> pa.Array:
    total = int(offsets[-1])
    headers = _header_rows(data, positions, np.diff(offsets), total) if total else _NO_HEADERS
    type_ = schema.RECORD_SCHEMA.field(schema.HEADERS).type
    return pa.Array.from_buffers(type_, len(positions), [None, pa.py_buffer(offsets)], children=[headers])


def _header_rows(
    data: NDArray[np.uint8], positions: NDArray[np.int64], counts: NDArray[np.int32], total: int
) -> pa.Array:
    key_position, key_length = np.empty(total, np.int64), np.empty(total, np.int32)
    value_position, value_length = np.empty(total, np.int64), np.empty(total, np.int32)
    found = list_headers(data, positions, counts, key_position, key_length, value_position, value_length)
    if found != total:
        raise ValueError("the headers do not lie within the data that they came from")
    keys = _text(data, key_position, key_length)
    values = _bytes(pa.binary(), data, value_position, value_length)
    return pa.StructArray.from_arrays([keys, values], fields=list(schema.HEADER_TYPE))


def _text(data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int32]) -> pa.Array:
    """Header keys. Bytes that are not UTF-8 are replaced: Arrow does not check a buffer that is declared as text."""
    keys = _bytes(pa.binary(), data, positions, lengths)
    _, offsets, content = keys.buffers()
    if not np.any(np.frombuffer(content, np.uint8) >= 0x80):
        return pa.Array.from_buffers(pa.string(), len(keys), [None, offsets, content])
    return pa.array([key.decode("utf-8", errors="replace") for key in keys.to_pylist()], pa.string())
