"""Encodes Python records, tables and transaction markers of a caller in this process as batches, ready to be written.

The rules are those for batches of a client (`duralog.storage.append.validation`). But here the records come first: they
are checked as columns, and the batches are correct by construction.

The records of a producer with an id go into one batch for each append, as in a Produce request: sequence numbers
identify a whole batch, so that it is recognised when it is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from duralog.columnar.encode_columns import (
    DEFAULT_BATCH_BYTES,
    BatchSettings,
    EncodedBatches,
    WritableColumns,
    encode_columns,
)
from duralog.columnar.record_columns import first_null, record_columns
from duralog.config import TopicConfig
from duralog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, arrow_needed
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.control_records import ControlType, EndTransactionMarker, encode
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from duralog.format.record import Record, TimestampType
from duralog.kernels.encode import HEADER_BYTES, MAX_RECORDS_BYTES
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.producer_batch import producer_batches
from duralog.storage.append.rebuilding import target_codec, target_level
from duralog.storage.append.validation import ValidBatches
from duralog.storage.segment.batch_extents import extents

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_RECORD_OVERHEAD = 31
"""The most bytes of a record besides key, value and headers: length, attributes, both deltas, two lengths."""


class SendingProducer(NamedTuple):
    """The producer of an idempotent or transactional append."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False

    def check(self) -> None:
        if self.producer_id == NO_PRODUCER_ID:
            if self != SendingProducer():
                raise InvalidRecord("a producer epoch, a sequence number or a transaction needs a producer id")
        elif self.producer_id < 0 or self.producer_epoch < 0 or self.base_sequence < 0:
            raise InvalidRecord(
                f"producer {self.producer_id}: epoch {self.producer_epoch} and sequence {self.base_sequence}"
                " must both be given, and none may be negative"
            )


def batches_of_records(
    records: Sequence[Record], *, config: TopicConfig, stamp: Stamp, codec: Codec | None, producer: SendingProducer
) -> ValidBatches:
    columns = record_columns(records, base_offset=stamp.next_offset, default_timestamp_ms=stamp.now_ms)
    return _encode(columns, config=config, stamp=stamp, codec=codec, producer=producer)


def batches_of_table(
    table: pa.Table | pa.RecordBatch, *, config: TopicConfig, stamp: Stamp, codec: Codec | None
) -> ValidBatches:
    """The offsets of a table that was read from a log are ignored: the records get new ones."""
    # Not at the top: pyarrow is only loaded if tables are appended.
    with arrow_needed():
        from duralog.columnar.schema import OFFSET
        from duralog.columnar.writable import writable_columns

    kept = [index for index, name in enumerate(table.schema.names) if name != OFFSET]
    columns = writable_columns(table.select(kept), base_offset=stamp.next_offset, default_timestamp_ms=stamp.now_ms)
    return _encode(columns, config=config, stamp=stamp, codec=codec, producer=SendingProducer())


def marker_batch(
    *, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The control batch that ends a transaction. It is validated like any other batch."""
    if producer_id < 0 or producer_epoch < 0:
        raise InvalidRecord(f"producer {producer_id}, epoch {producer_epoch}: neither may be negative")
    type_ = ControlType.COMMIT if commit else ControlType.ABORT
    key, value = encode(EndTransactionMarker(type=type_, coordinator_epoch=coordinator_epoch))
    return bytearray(
        record_batch.encode(
            [Record(key=key, value=value, timestamp_ms=now_ms)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
    )


def _encode(
    columns: WritableColumns, *, config: TopicConfig, stamp: Stamp, codec: Codec | None, producer: SendingProducer
) -> ValidBatches:
    producer.check()
    check_keys(columns, config)
    is_create_time = config.message_timestamp_type == "CreateTime"
    if is_create_time:
        check_timestamps(columns, config, stamp.now_ms)
    stored = stored_codec(config, codec)
    in_one_batch = producer.producer_id != NO_PRODUCER_ID
    encoded = encode_columns(
        columns,
        BatchSettings(
            codec=stored,
            level=target_level(config, stored),
            batch_bytes=_all_bytes(columns) if in_one_batch else batch_room(config, stored),
            timestamp_type=TimestampType.CREATE_TIME if is_create_time else TimestampType.LOG_APPEND_TIME,
            append_time_ms=stamp.now_ms,
            leader_epoch=stamp.leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=producer.base_sequence,
            is_transactional=producer.is_transactional,
        ),
    )
    check_sizes(encoded, config)
    if in_one_batch and len(encoded) > 1:
        raise RecordTooLarge("the records of a producer with an id do not fit one batch")
    rows = encoded.batches
    data = encoded.data.data

    def read(position: int, size: int) -> memoryview:
        return data[position : position + size]

    return ValidBatches(
        buffers=(data,),
        extents=extents(rows),
        producer_batches=tuple(producer_batches(rows, read)) if in_one_batch else (),
        base_offset=stamp.next_offset,
        last_offset=stamp.next_offset + len(columns.offset) - 1,
        max_timestamp_ms=int(rows["max_timestamp"].max(initial=NO_TIMESTAMP)),
        append_time_ms=NO_TIMESTAMP if is_create_time else stamp.now_ms,
        size_bytes=len(encoded.data),
    )


def check_keys(columns: WritableColumns, config: TopicConfig) -> None:
    if "compact" in config.cleanup_policy:
        row = first_null(columns.key)
        if row is not None:
            raise InvalidRecord(
                f"record {row} has no key: a compacted topic needs one",
                record_errors=[(row, "column key: null, and a compacted topic takes no record without a key")],
            )


def check_timestamps(columns: WritableColumns, config: TopicConfig, now_ms: int) -> None:
    """For topics with `message.timestamp.type=CreateTime`."""
    times = columns.timestamp
    if not len(times):
        return
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    earliest, latest = now_ms - before, now_ms + after
    if int(times.min()) >= earliest and int(times.max()) <= latest:
        return
    row = int(np.flatnonzero((times < max(earliest, -1)) | (times > min(latest, 2**63 - 1)))[0])
    reason = (
        f"timestamp {times[row]}, the clock says {now_ms}: message.timestamp.before.max.ms allows {before} ms behind"
        f" it, message.timestamp.after.max.ms {after} ms ahead"
    )
    raise InvalidTimestamp(f"record {row} has {reason}", record_errors=[(row, f"column timestamp: {reason}")])


def stored_codec(config: TopicConfig, codec: Codec | None) -> Codec:
    """The codec of the topic, or of the writer if the topic has `compression.type=producer`."""
    return (codec or Codec.NONE) if config.compression_type == "producer" else target_codec(config)


def batch_room(config: TopicConfig, codec: Codec, wanted_bytes: int = DEFAULT_BATCH_BYTES) -> int:
    """The bytes of records to put into a batch: as many as wanted, or fewer so that the topic accepts it."""
    room: int = config.max_message_bytes - HEADER_BYTES
    if codec is not Codec.NONE:
        # Incompressible data grows a little, with snappy by a sixth at worst.
        room -= room // 6 + 64
    return max(1, min(room, wanted_bytes))


def check_sizes(encoded: EncodedBatches, config: TopicConfig) -> None:
    too_large = np.flatnonzero(encoded.batches["size"] > config.max_message_bytes)
    if len(too_large):
        batch = encoded.batches[too_large[0]]
        first = int(encoded.batches["record_count"][: too_large[0]].sum())
        last = first + int(batch["record_count"]) - 1
        what = f"record {first} makes" if first == last else f"records {first} to {last} make"
        reason = f"a batch of {batch['size']} bytes, max.message.bytes is {config.max_message_bytes}"
        raise RecordTooLarge(f"{what} {reason}", record_errors=[(first, f"column value: the record makes {reason}")])


def _all_bytes(columns: WritableColumns) -> int:
    """At least the size of all records, so that they get into one batch."""
    content = sum(
        int(column.offsets[-1] - column.offsets[0]) for column in (columns.key, columns.value, columns.headers)
    )
    most: int = MAX_RECORDS_BYTES
    return max(1, min(content + _MOST_RECORD_OVERHEAD * len(columns.offset), most))
