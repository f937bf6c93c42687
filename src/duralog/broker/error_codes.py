"""Kafka's error codes, and which of them tells a client of one of duralog's own errors."""

from __future__ import annotations

from duralog.broker.messages import InvalidMessage  # Before kio: it keeps kio from importing what no broker needs.

# isort: split
from kio.schema.errors import ErrorCode

from duralog import errors

__all__ = ["ErrorCode", "error_code_of"]

_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    (InvalidMessage, ErrorCode.invalid_request),
    (errors.RecordTooLarge, ErrorCode.message_too_large),
    (errors.InvalidTimestamp, ErrorCode.invalid_timestamp),
    (errors.InvalidRecord, ErrorCode.invalid_record),
    (errors.CorruptRecord, ErrorCode.corrupt_message),
    (errors.OffsetOutOfRange, ErrorCode.offset_out_of_range),
    (errors.ProducerFenced, ErrorCode.invalid_producer_epoch),
    (errors.OutOfOrderSequence, ErrorCode.out_of_order_sequence_number),
    (errors.CoordinatorFenced, ErrorCode.transaction_coordinator_fenced),
    (errors.InvalidTransactionState, ErrorCode.invalid_txn_state),
    (errors.UnknownTopic, ErrorCode.unknown_topic_or_partition),
    (errors.TopicExists, ErrorCode.topic_already_exists),
    (errors.InvalidTopic, ErrorCode.invalid_topic_exception),
    (errors.InvalidConfig, ErrorCode.invalid_config),
    (errors.StorageError, ErrorCode.kafka_storage_error),
)
"""A class stands before the class that it is derived from."""


def error_code_of(error: BaseException) -> ErrorCode:
    """What to answer when the store refuses; UNKNOWN_SERVER_ERROR for what nobody expected."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.unknown_server_error
