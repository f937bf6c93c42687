"""An Arrow table to record batches of format v2, ready to be appended to a segment.

Of the table's columns these are read, any others are not:

- `value`, and `key` if there is one: binary or string, of any of Arrow's kinds;
- `timestamp`, optional: any unit and zone, or int64 milliseconds; finer ones are rounded down; null or -1 ms is none;
- `headers`, optional: list<struct<key, value>>; a null list is no headers; a null key is refused, a null value is not;
- `offset`, optional: int64, increasing, with gaps where the log has some. Without it the offsets are consecutive.

Bad input is refused whole, with an `InvalidRecord` that names the column and the row. How the table is cut into chunks
makes no difference to the bytes; a table of several chunks is joined first, which costs a copy.
"""

from __future__ import annotations

import pyarrow as pa

from duralog.columnar.encode_columns import DEFAULT_BATCH_BYTES, EncodedBatches, encode_columns
from duralog.columnar.writable import writable_columns
from duralog.format.compression import Codec
from duralog.format.layout import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from duralog.format.record import TimestampType

__all__ = ["DEFAULT_BATCH_BYTES", "EncodedBatches", "encode_batches"]


def encode_batches(
    table: pa.Table | pa.RecordBatch,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    max_records_per_batch: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    default_timestamp_ms: int | None = None,
) -> EncodedBatches:
    """Encode all rows, in their order.

    A batch takes records up to `batch_bytes` before compression, its header not counted, or one record that is larger.
    `base_offset` is where consecutive offsets begin; an `offset` column is taken as it is. `default_timestamp_ms`
    stands in for a missing timestamp. The base sequence of each further batch follows the last one of the batch before.
    """
    default_timestamp = NO_TIMESTAMP if default_timestamp_ms is None else default_timestamp_ms
    columns = writable_columns(table, base_offset=base_offset, default_timestamp_ms=default_timestamp)
    return encode_columns(
        columns,
        codec=codec,
        level=level,
        batch_bytes=batch_bytes,
        max_records_per_batch=max_records_per_batch,
        timestamp_type=timestamp_type,
        append_time_ms=append_time_ms,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
