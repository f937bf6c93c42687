"""The one record type of `__transaction_state`: where each transactional producer stands."""

from __future__ import annotations

from enum import IntEnum

from duralog.format.internal.coordinator_records import RecordType, record_types
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct


class TransactionStatus(IntEnum):
    """The meaning of `transaction_status`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


AT_REST = frozenset((TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT))
"""Of a producer that has no transaction under way."""
NEVER_WRITTEN = frozenset((TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE))
"""A coordinator of Kafka knows these for a moment and writes neither."""


TRANSACTION_STATE_TYPES = record_types(
    RecordType(
        "TransactionLog",
        0,
        Message("TransactionLogKey", (Field("transactional_id", "string"),), flexible_since=None),
        Message(
            "TransactionLogValue",
            (
                Field("producer_id", "int64"),
                Field("previous_producer_id", "int64", since=1, tag=0, default=-1),
                Field("next_producer_id", "int64", since=1, tag=1, default=-1),
                Field("producer_epoch", "int16"),
                Field("next_producer_epoch", "int16", since=1, tag=3, default=-1),
                Field("transaction_timeout_ms", "int32"),
                Field("transaction_status", "int8"),
                Field(
                    "transaction_partitions",
                    ArrayOf(Struct((Field("topic", "string"), Field("partition_ids", ArrayOf("int32"))))),
                    nullable=True,
                ),
                Field("transaction_last_update_timestamp_ms", "int64"),
                Field("transaction_start_timestamp_ms", "int64"),
                Field("client_transaction_version", "int16", since=1, tag=2, default=0),
            ),
            last_version=1,
            flexible_since=1,
        ),
    )
)
