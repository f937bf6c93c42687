"""Arrow tables as record batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from duralog.columnar.encode_columns import BatchSettings, EncodedBatches, encode_columns
from duralog.columnar.writable import writable_columns
from duralog.format.layout import NO_TIMESTAMP


def encode_batches(
    table: pa.Table | pa.RecordBatch,
    *,
    base_offset: int = 0,
    default_timestamp_ms: int = NO_TIMESTAMP,
    **settings: Any,
) -> EncodedBatches:
    columns = writable_columns(table, base_offset=base_offset, default_timestamp_ms=default_timestamp_ms)
    return encode_columns(columns, BatchSettings(**settings))
