"""Decoded records as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np

from duralog.columnar.decoded import DecodedRecords
from duralog.format.layout import LOG_APPEND_TIME_BIT
from duralog.format.record import Header, Record, TimestampType
from duralog.kernels.gather import list_headers


def to_records(decoded: DecodedRecords) -> Iterator[Record]:
    """The records of a chunk, in their order."""
    columns = decoded.columns
    data = decoded.data.data
    headers = _headers(decoded) if columns.header_count.any() else repeat(())
    for offset, timestamp_ms, key_at, key_length, value_at, value_length, type_, of_record in zip(
        columns.offset.tolist(),
        columns.timestamp.tolist(),
        columns.key_position.tolist(),
        columns.key_length.tolist(),
        columns.value_position.tolist(),
        columns.value_length.tolist(),
        _timestamp_types(decoded),
        headers,
        strict=False,  # `repeat` has no end
    ):
        yield Record(
            key=None if key_length < 0 else bytes(data[key_at : key_at + key_length]),
            value=None if value_length < 0 else bytes(data[value_at : value_at + value_length]),
            timestamp_ms=timestamp_ms,
            headers=of_record,
            offset=offset,
            timestamp_type=type_,
        )


def to_keys_and_values(decoded: DecodedRecords) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """The offset, the key and the value of each record of a chunk, without the other fields."""
    columns = decoded.columns
    data = decoded.data.data
    for offset, key_at, key_length, value_at, value_length in zip(
        columns.offset.tolist(),
        columns.key_position.tolist(),
        columns.key_length.tolist(),
        columns.value_position.tolist(),
        columns.value_length.tolist(),
        strict=True,
    ):
        key = None if key_length < 0 else bytes(data[key_at : key_at + key_length])
        yield offset, key, None if value_length < 0 else bytes(data[value_at : value_at + value_length])


def _timestamp_types(decoded: DecodedRecords) -> Iterator[TimestampType]:
    batch_row = decoded.batch_row
    rows, counts = batch_row[:1], [len(batch_row)]
    if len(batch_row) and batch_row[0] != batch_row[-1]:
        rows, found = np.unique(batch_row, return_counts=True)
        counts = found.tolist()
    for row, count in zip(rows.tolist(), counts, strict=True):
        batch = decoded.batches[row]
        if batch["magic"] == 0:
            type_ = TimestampType.NONE
        elif batch["attributes"] & LOG_APPEND_TIME_BIT:
            type_ = TimestampType.LOG_APPEND_TIME
        else:
            type_ = TimestampType.CREATE_TIME
        yield from repeat(type_, count)


def _headers(decoded: DecodedRecords) -> Iterator[tuple[Header, ...]]:
    counts = decoded.columns.header_count
    total = int(counts.sum(dtype=np.int64))
    key_position, value_position = np.empty(total, np.int64), np.empty(total, np.int64)
    key_length, value_length = np.empty(total, np.int32), np.empty(total, np.int32)
    found = list_headers(
        decoded.data,
        decoded.columns.headers_position,
        counts,
        key_position,
        key_length,
        value_position,
        value_length,
    )
    assert found == total, "headers that were decoded lie within their data"
    data = decoded.data.data
    fields = zip(
        key_position.tolist(), key_length.tolist(), value_position.tolist(), value_length.tolist(), strict=True
    )
    for count in counts.tolist():
        of_record: list[Header] = []
        for _ in range(count):
            key_at, key_size, value_at, value_size = next(fields)
            key = bytes(data[key_at : key_at + key_size]).decode("utf-8", errors="replace")
            of_record.append((key, None if value_size < 0 else bytes(data[value_at : value_at + value_size])))
        yield tuple(of_record)
