"""Decoded records under the names and types of Spark's Kafka connector, in Arrow; no PySpark here.

Times are in microseconds, as Spark keeps them. A record without a timestamp has a null one, and so has one whose
timestamp does not fit (beyond the year 294,000): such times come from producers that used the wrong unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar import schema

TIMESTAMP_TYPE = "timestampType"

_TIME = pa.timestamp("us", tz="UTC")
_MOST_MS = (2**63 - 1) // 1000


@lru_cache(maxsize=2)
def connector_schema(*, headers: bool) -> pa.Schema:
    """The connector's columns, in its order."""
    fields = [
        pa.field(schema.KEY, pa.binary()),
        pa.field(schema.VALUE, pa.binary()),
        pa.field(schema.TOPIC, pa.string()),
        pa.field(schema.PARTITION, pa.int32()),
        pa.field(schema.OFFSET, pa.int64()),
        pa.field(schema.TIMESTAMP, _TIME),
        pa.field(TIMESTAMP_TYPE, pa.int32()),
    ]
    return pa.schema([*fields, schema.RECORD_SCHEMA.field(schema.HEADERS)] if headers else fields)


def record_columns(names: Iterable[str]) -> list[str]:
    """Which columns of decoded records are needed for these of the connector's; other names are left out."""
    wanted = {schema.TIMESTAMP_TYPE if name == TIMESTAMP_TYPE else name for name in names}
    return [name for name in schema.RECORD_SCHEMA.names if name in wanted]


def connector_column(records: pa.RecordBatch, name: str) -> pa.Array:
    """One of the connector's columns."""
    if name == schema.TIMESTAMP:
        return microseconds(records.column(schema.TIMESTAMP))
    if name == TIMESTAMP_TYPE:
        return records.column(schema.TIMESTAMP_TYPE).cast(pa.int32())
    return records.column(name)


def microseconds(times: pa.Array) -> pa.Array:
    """Timestamps of records, which have milliseconds."""
    milliseconds = times_ms(times)
    fits = (milliseconds >= -_MOST_MS) & (milliseconds <= _MOST_MS)
    validity = None
    if times.null_count or not fits.all():
        if times.null_count:
            fits &= times.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(fits, bitorder="little"))
        milliseconds = np.where(fits, milliseconds, 0)
    return pa.Array.from_buffers(_TIME, len(times), [validity, pa.py_buffer(milliseconds * 1000)])


def times_ms(times: pa.Array) -> NDArray[np.int64]:
    """The milliseconds of timestamps; any number for a null."""
    _, content = times.buffers()
    return np.frombuffer(content, np.int64, len(times), times.offset * 8)
