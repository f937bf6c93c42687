"""The Arrow schema of decoded records: names and types, the same for every source.

The names are those of Spark's own Kafka connector, `timestamp_type` apart, which is `timestampType` there.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

TOPIC = "topic"
PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestamp_type"
KEY = "key"
VALUE = "value"
HEADERS = "headers"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

RECORD_SCHEMA = pa.schema(
    [
        pa.field(TOPIC, pa.string()),
        pa.field(PARTITION, pa.int32()),
        pa.field(OFFSET, pa.int64()),
        pa.field(TIMESTAMP, pa.timestamp("ms", tz="UTC")),
        pa.field(TIMESTAMP_TYPE, pa.int8()),
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
        pa.field(HEADERS, pa.list_(pa.field("item", HEADER_TYPE))),
    ]
)
"""A record without a timestamp (v0, or -1) has a null one. `timestamp_type` holds the numbers of `TimestampType`."""


@lru_cache(maxsize=16)
def record_schema(columns: tuple[str, ...] | None) -> pa.Schema:
    """Of the named columns, in the order of `RECORD_SCHEMA`; all of them if none are named."""
    if columns is None:
        return RECORD_SCHEMA
    unknown = set(columns) - set(RECORD_SCHEMA.names)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}; there are {RECORD_SCHEMA.names}")
    return pa.schema([field for field in RECORD_SCHEMA if field.name in columns])
