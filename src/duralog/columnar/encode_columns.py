"""Encodes columns of records as record batches of format v2: plans batches, writes, compresses and seals them.

The columns come from an Arrow table (`duralog.columnar.writable`) or from Python records
(`duralog.columnar.record_columns`). They are checked there: the kernels check nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.errors import InvalidRecord
from duralog.format.compression import Codec, compress
from duralog.format.layout import (
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from duralog.format.record import TimestampType
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.encode import (
    HEADER_BYTES,
    MAX_RECORDS_BYTES,
    BinaryColumn,
    plan_batches,
    seal_batches,
    write_batches,
)
from duralog.kernels.writing import SLACK

DEFAULT_BATCH_BYTES = 16384
"""As Kafka's producer batches by default."""

_MAGIC = 2
_MAX_LENGTH_BYTES = 5
_SEQUENCES = 2**31


class WritableColumns(NamedTuple):
    """In the order of the kernels' arguments."""

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    key: BinaryColumn
    value: BinaryColumn
    headers: BinaryColumn
    """The count of headers and the headers, encoded."""


@dataclass(frozen=True, slots=True)
class EncodedBatches:
    """Whole batches, one after the other, and a row for each, as a scan would return it."""

    data: NDArray[np.uint8]
    batches: NDArray[np.void]
    """Of `BATCH_DTYPE`; `position` counts in `data`."""

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def record_count(self) -> int:
        return int(self.batches["record_count"].sum())


@dataclass(frozen=True, slots=True)
class _Plan:
    body_size: NDArray[np.int32]
    first_row: NDArray[np.int64]
    records_bytes: int

    @property
    def batch_count(self) -> int:
        return len(self.first_row) - 1


class BatchSettings(NamedTuple):
    """How records are grouped into batches, and fields of the batch headers."""

    codec: Codec = Codec.NONE
    level: int | None = None
    """Of the compression; None is the codec's default."""
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """A batch takes records up to this size before compression, without its header, or one larger record."""
    max_records_per_batch: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    append_time_ms: int | None = None
    """Needed for log append time."""
    leader_epoch: int = NO_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    """Of the first batch. That of each further batch follows the last sequence number of the batch before."""
    is_transactional: bool = False


def encode_columns(columns: WritableColumns, settings: BatchSettings) -> EncodedBatches:
    """Encode all rows, in their order."""
    batch_bytes, max_records_per_batch = settings.batch_bytes, settings.max_records_per_batch
    if not 0 < batch_bytes <= MAX_RECORDS_BYTES:
        raise ValueError(f"batch_bytes must be from 1 to {MAX_RECORDS_BYTES}, not {batch_bytes}")
    if max_records_per_batch is not None and max_records_per_batch < 1:
        raise ValueError(f"max_records_per_batch must be at least 1, not {max_records_per_batch}")
    plan = _plan(columns, batch_bytes, max_records_per_batch or MAX_RECORDS_BYTES)

    attributes = int(settings.codec)
    max_timestamp_ms = NO_TIMESTAMP
    if settings.timestamp_type is TimestampType.NONE:
        raise InvalidRecord("format v2 has no records without a timestamp type")
    if settings.timestamp_type is TimestampType.LOG_APPEND_TIME:
        if settings.append_time_ms is None:
            raise InvalidRecord("log append time needs append_time_ms")
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp_ms = settings.append_time_ms
    if settings.is_transactional:
        attributes |= TRANSACTIONAL_BIT
    batches = np.zeros(plan.batch_count, BATCH_DTYPE)
    batches["magic"] = _MAGIC
    batches["attributes"] = attributes
    try:
        batches["max_timestamp"] = max_timestamp_ms
        batches["leader_epoch"] = settings.leader_epoch
        batches["producer_id"] = settings.producer_id
        batches["producer_epoch"] = settings.producer_epoch
        batches["base_sequence"] = settings.base_sequence
    except OverflowError as error:
        raise InvalidRecord(f"a field of the batch header is out of range: {error}") from None
    if settings.base_sequence != NO_SEQUENCE:
        batches["base_sequence"] = _base_sequences(columns.offset, plan.first_row, settings.base_sequence)

    if settings.codec is Codec.NONE:
        return _write_plain(columns, plan, batches)
    return _write_compressed(columns, plan, batches, settings)


def _plan(columns: WritableColumns, batch_bytes: int, batch_records: int) -> _Plan:
    rows = len(columns.offset)
    body_size = np.empty(rows, np.int32)
    first_row = np.empty(rows + 1, np.int64)
    count, records_bytes, refused_row = plan_batches(*columns, batch_bytes, batch_records, body_size, first_row)
    if refused_row >= 0:
        reason = f"expected a record of at most {MAX_RECORDS_BYTES} bytes, found a larger one"
        raise InvalidRecord(f"row {refused_row}: {reason}", record_errors=[(refused_row, reason)])
    return _Plan(body_size, first_row[: count + 1].copy(), records_bytes)


def _base_sequences(offset: NDArray[np.int64], first_row: NDArray[np.int64], base_sequence: int) -> NDArray[np.int64]:
    """A sequence number counts offsets, as Kafka reads it, and starts again at 0 after 2^31 - 1."""
    taken = offset[first_row[1:] - 1] - offset[first_row[:-1]] + 1
    sequences: NDArray[np.int64] = (base_sequence + np.cumsum(taken) - taken) % _SEQUENCES
    return sequences


def _write_plain(columns: WritableColumns, plan: _Plan, batches: NDArray[np.void]) -> EncodedBatches:
    size = HEADER_BYTES * plan.batch_count + plan.records_bytes
    out = np.empty(size + SLACK, np.uint8)
    write_batches(*columns, plan.body_size, plan.first_row, batches, 0, plan.batch_count, True, out)
    return EncodedBatches(out[:size], batches)


def _write_compressed(
    columns: WritableColumns, plan: _Plan, batches: NDArray[np.void], settings: BatchSettings
) -> EncodedBatches:
    packed = [
        compress(settings.codec, records, magic=_MAGIC, level=settings.level)
        for records in _each_batch_of_records(columns, plan, batches, settings.batch_bytes)
    ]
    sizes = np.fromiter((len(records) for records in packed), np.int64, len(packed))
    if len(sizes) and sizes.max() > MAX_RECORDS_BYTES:
        raise InvalidRecord(f"a batch of {sizes.max()} bytes is too large for its length field")
    sizes += HEADER_BYTES
    ends = np.cumsum(sizes)
    batches["size"] = sizes
    batches["position"] = ends - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for end, records in zip(ends.tolist(), packed, strict=True):
        out[end - len(records) : end] = np.frombuffer(records, np.uint8)
    seal_batches(batches, out)
    return EncodedBatches(out, batches)


def _each_batch_of_records(
    columns: WritableColumns, plan: _Plan, batches: NDArray[np.void], batch_bytes: int
) -> Iterator[bytes]:
    """The record bytes of one batch after the other."""
    largest_record = int(plan.body_size.max(initial=0)) + _MAX_LENGTH_BYTES
    scratch = np.empty(HEADER_BYTES + max(batch_bytes, largest_record) + SLACK, np.uint8)
    for number in range(plan.batch_count):
        write_batches(*columns, plan.body_size, plan.first_row, batches, number, number + 1, False, scratch)
        yield scratch[HEADER_BYTES : batches["size"][number]].tobytes()
