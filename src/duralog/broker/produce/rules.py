"""Rules for the batches of a Produce request that need no log, and the texts of refusals.

Kafka checks in this order, and which error a client gets depends on it: first the headers of all batches and whether a
transactional one comes without a transactional id (either refuses the whole request), then each partition's first
batch, then the transaction, then the log itself.

Kafka does not check the records of its internal topics. A record that its coordinators cannot load is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from duralog.broker.produce.request import ProduceRequest
from duralog.broker.produce.response import NO_OFFSET, PartitionResponse
from duralog.broker.wire import error_codes
from duralog.errors import CorruptRecord, Fault, InvalidRecord, InvalidTimestamp, RecordTooLarge, StorageError
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.internal.loadable_records import decode_loadable, stops_kafka, unknown_reason
from duralog.format.layout import BATCH_V2, CODEC_MASK, ENTRY_PREFIX, MIN_BATCH_BYTES, TRANSACTIONAL_BIT
from duralog.format.record import Record
from duralog.format.record_batch import MAGIC
from duralog.format.varint import Bytes
from duralog.storage.append.batch_admission import WITHOUT_NEEDED_KEY
from duralog.storage.log.partition_log import PartitionLog

_FIRST_WITH_ZSTD = 7
_HEAD = struct.Struct(">qi4xb4xh")
_unpack_head = _HEAD.unpack_from
_PRODUCER = struct.Struct(">qh")
assert _HEAD.size == BATCH_V2.at.attributes + 2
assert BATCH_V2.at.producer_epoch == BATCH_V2.at.producer_id + 8
_LEAST_LENGTH = MIN_BATCH_BYTES[0] - ENTRY_PREFIX.size
"""The least value of a length field: that of the smallest message of any format."""
_HEADER_FAULTS = (Fault.CRC_MISMATCH, Fault.BATCH_LENGTH, Fault.UNKNOWN_MAGIC, Fault.PARTIAL_BATCH)
_SHOWN_ERRORS = 3
_MOST_RECORD_ERRORS = 100
_LARGEST_INTERNAL_BYTES = 4 << 20
"""What a client's batch for an internal topic may unpack to, at least: its records are decoded in Python."""
_CODEC_FAULTS = (Fault.DECOMPRESSION, Fault.UNKNOWN_CODEC)

CORRUPT = PartitionResponse(error_codes.CORRUPT_MESSAGE)
REFUSED = PartitionResponse(error_codes.INVALID_RECORD)


class SentBatch(NamedTuple):
    """The header of the first batch that was sent for a partition, as far as it matters here."""

    size_bytes: int
    magic: int
    codec_id: int
    base_offset: int
    is_transactional: bool
    producer_id: int
    producer_epoch: int


def ordinary_attributes(records: memoryview, version: int) -> int | None:
    """The attributes of the batch, if there is exactly one of the written format and no rule is about it; else None.

    Rules are about transactions, and about codecs that older versions may not send: see `batch_refusal`.
    """
    size = len(records)
    if size < BATCH_V2.size:
        return None
    _, length, magic, attributes = _unpack_head(records)
    if (
        length + ENTRY_PREFIX.size == size
        and magic == MAGIC
        and not attributes & TRANSACTIONAL_BIT
        and (version >= _FIRST_WITH_ZSTD or not attributes & CODEC_MASK)
    ):
        return attributes  # type: ignore[no-any-return]
    return None


def first_batch(records: memoryview) -> SentBatch | None:
    """The first batch; None if it is incomplete. Raises `CorruptRecord` if the bytes cannot be a batch."""
    if len(records) < _HEAD.size:
        return None
    base_offset, length, magic, attributes = _HEAD.unpack_from(records)
    if length < _LEAST_LENGTH or not 0 <= magic <= MAGIC:
        fault = Fault.BATCH_LENGTH if length < _LEAST_LENGTH else Fault.UNKNOWN_MAGIC
        if fault is Fault.BATCH_LENGTH:
            reason = f"Record size {length} is less than the minimum record overhead ({_LEAST_LENGTH})"
        else:
            reason = f"Invalid magic found in record: {magic}"
        raise CorruptRecord(reason, fault=fault)
    if length > len(records) - ENTRY_PREFIX.size:
        return None
    size_bytes = ENTRY_PREFIX.size + length
    if magic < MAGIC or len(records) < BATCH_V2.size:
        return SentBatch(size_bytes, magic, 0, base_offset, False, -1, -1)
    producer_id, producer_epoch = _PRODUCER.unpack_from(records, BATCH_V2.at.producer_id)
    is_transactional = bool(attributes & TRANSACTIONAL_BIT)
    codec_id = attributes & CODEC_MASK
    return SentBatch(size_bytes, magic, codec_id, base_offset, is_transactional, producer_id, producer_epoch)


def has_transactional_records(asked: ProduceRequest) -> bool:
    """Whether any first batch is transactional. Bytes that are not a batch are not."""
    for numbers in asked.topics.values():
        for records in numbers.values():
            try:
                batch = None if records is None else first_batch(records)
            except CorruptRecord:
                continue
            if batch is not None and batch.is_transactional:
                return True
    return False


def batch_refusal(records: memoryview, batch: SentBatch, version: int) -> PartitionResponse | None:
    """The refusal of a partition's records before its log is asked; None if there is no reason.

    There must be one batch for each partition, of the current format. An incomplete batch after it is ignored.
    """
    if batch.magic != MAGIC:
        return REFUSED
    if batch.codec_id == Codec.ZSTD and version < _FIRST_WITH_ZSTD:
        return PartitionResponse(error_codes.UNSUPPORTED_COMPRESSION_TYPE)
    if batch.size_bytes < len(records):
        try:
            if first_batch(records[batch.size_bytes :]) is not None:
                return REFUSED
        except CorruptRecord:
            return CORRUPT
    return None


def check_internal_records(log: PartitionLog, batch: Bytes) -> None:
    """Raise InvalidRecord for records that a coordinator cannot load. The log checks the batch itself.

    REQUIRES: the log is of one of the coordinators' topics; this is a worker thread.
    """
    if len(batch) < BATCH_V2.size:
        return
    most_bytes = max(_LARGEST_INTERNAL_BYTES, log.config.max_message_bytes)
    try:
        records = record_batch.decode_records(
            batch, record_batch.decode_header(batch, 0), max_decompressed_bytes=most_bytes
        )
    except CorruptRecord as error:
        if error.fault is Fault.TOO_LARGE:
            raise RecordTooLarge(f"the batch unpacks to more than {most_bytes} bytes") from None
        return
    faults = ((place, _internal_fault(log, record)) for place, record in enumerate(records))
    record_errors = list(islice(((place, fault) for place, fault in faults if fault is not None), _MOST_RECORD_ERRORS))
    if record_errors:
        raise InvalidRecord("records that no coordinator can load", record_errors=record_errors)


def _internal_fault(log: PartitionLog, record: Record) -> str | None:
    size_bytes = len(record.key or b"") + len(record.value or b"")
    if size_bytes > log.config.max_message_bytes:
        # Coordinators write no larger ones, and a decoded record may take a hundred times its size.
        return f"The record of {size_bytes} bytes is larger than max.message.bytes."
    try:
        decoded = decode_loadable(log.topic, record.key, record.value)
    except CorruptRecord as error:
        return f"No coordinator can load the record: {error}."
    if stops_kafka(log.topic, decoded):
        return f"No coordinator can load the record: {unknown_reason(decoded)}."
    return None


def append_refusal(error: Exception, log: PartitionLog, size_bytes: int, base_offset: int) -> PartitionResponse:
    """What a client gets for an error of the log, for a batch that claims this base offset.

    As in Kafka, it gets the log start offset unless the header, the size or the disk is the reason, and a message only
    if single records are.
    """
    if isinstance(error, StorageError):
        return PartitionResponse(error_codes.KAFKA_STORAGE_ERROR)
    if isinstance(error, RecordTooLarge):
        fits_batch = size_bytes <= log.config.max_message_bytes
        return PartitionResponse(error_codes.RECORD_LIST_TOO_LARGE if fits_batch else error_codes.MESSAGE_TOO_LARGE)
    code = error_codes.code_of(error)
    if isinstance(error, CorruptRecord):
        if error.fault in _HEADER_FAULTS and (base_offset == 0 or error.fault is not Fault.BATCH_LENGTH):
            return CORRUPT
        if error.fault is Fault.TOO_LARGE:
            # Kafka has no limit to what a batch unpacks to. With this code, a producer splits the batch and retries.
            return PartitionResponse(error_codes.MESSAGE_TOO_LARGE, message=str(error))
        # As in Kafka, a failing codec is an unknown server error.
        is_codecs = error.fault in _CODEC_FAULTS
        code = error_codes.UNKNOWN_SERVER_ERROR if is_codecs else error_codes.INVALID_RECORD
    start_offset = log.start_offset
    if isinstance(error, InvalidRecord) and error.record_errors:
        record_errors = [
            (place, f"{text} in topic partition {log.topic}-{log.partition}" if text == WITHOUT_NEEDED_KEY else text)
            for place, text in error.record_errors
        ]
        message = _summary(record_errors, is_about_times=isinstance(error, InvalidTimestamp))
        return PartitionResponse(code, log_start_offset=start_offset, record_errors=record_errors, message=message)
    return PartitionResponse(code, NO_OFFSET, log_start_offset=start_offset)


def _summary(record_errors: Sequence[tuple[int, str]], *, is_about_times: bool) -> str:
    """Kafka's own texts: producers show them, and people search for them."""
    if is_about_times:
        return "One or more records have been rejected due to invalid timestamp"
    first = record_errors[:_SHOWN_ERRORS]
    shown = ", ".join(f"RecordError(batchIndex={place}, message='{text}')" for place, text in first)
    return (
        f"One or more records have been rejected due to {len(record_errors)} record errors in total, and only showing "
        f"the first three errors at most: [{shown}]"
    )
