"""The states of all transactional producers as records of `__transaction_state`, in Kafka's format.

A record holds a whole state; the last one of a transactional id counts, and a tombstone removes the id. An id's records
are all in one partition. A state is written here before it takes effect, one batch for each state: after a crash, it is
in the log as a whole or not at all.

A record that cannot be loaded is skipped (`coordinator_log` says why that is safe). A partition that cannot be read to
its end is left alone: its ids are answered as those of another node, and nothing is written over what may still be
repaired. A state from before the damage must not come back: the transaction may have been decided since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from duralog.broker.net.log_lines import logger
from duralog.broker.runtime import Runtime
from duralog.broker.topics.coordinator_log import LoggedRecord, SkippedRecords, read_log, unreadable_text
from duralog.broker.topics.internal_topics import TRANSACTION_STATE
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.transactions.state import NO_TIME, Transaction
from duralog.broker.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    code_of,
)
from duralog.errors import DuralogError
from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.loadable_records import decode_loadable
from duralog.format.internal.transaction_records import AT_REST, TRANSACTION_STATE_TYPES, TransactionStatus
from duralog.format.java_hash import coordinator_partition
from duralog.format.layout import NO_PRODUCER_ID
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.storage.log.partition_log import PartitionLog

_TYPE_ID = 0
_FLEXIBLE = 1
"""The first transaction version whose states have tagged fields, and the version of their records."""

_COORDINATOR_CODES = {
    UNKNOWN_TOPIC_OR_PARTITION: COORDINATOR_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR: NOT_COORDINATOR,
    MESSAGE_TOO_LARGE: UNKNOWN_SERVER_ERROR,
}
"""The error code for a client if an append failed."""


class TransactionLog:
    def __init__(self, runtime: Runtime, topics: Topics, partitions: Partitions) -> None:
        self._runtime = runtime
        self._topics = topics
        self._partitions = partitions
        self.unreadable: set[int] = set()
        """Partitions that could not be read at start."""
        self.skipped = SkippedRecords(logger)

    @property
    def max_message_bytes(self) -> int:
        """Of the topic; 0 as long as there is none."""
        topic = self._topics.by_name(TRANSACTION_STATE)
        return 0 if topic is None else topic.topic.config.max_message_bytes

    def partition_for(self, transactional_id: str) -> int | None:
        """The partition of an id; None if there is none, or if it cannot be read."""
        topic = self._topics.by_name(TRANSACTION_STATE)
        if topic is None:
            return None
        number = coordinator_partition(transactional_id, len(topic.partitions))
        if number in self.unreadable or self._partitions.get(TRANSACTION_STATE, number) is None:
            return None
        return number

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch that markers carry: that of the leader of the id's partition. REQUIRES: it has one."""
        number = self.partition_for(transactional_id)
        partition = None if number is None else self._partitions.get(TRANSACTION_STATE, number)
        assert partition is not None
        return partition.log.leader_epoch

    def write(self, transactional_id: str, transaction: Transaction, server_version: int) -> int:
        """Write a state. Returns NONE, or the error code for the client."""
        number = self.partition_for(transactional_id)
        if number is None:
            return NOT_COORDINATOR
        return self._append(number, [encode(transactional_id, transaction, server_version)])

    def forget(self, number: int, transactional_ids: Iterable[str]) -> int:
        """Write tombstones for ids of a partition, all in one batch."""
        return self._append(number, [encode(transactional_id, None, 0) for transactional_id in transactional_ids])

    def _append(self, number: int, records: list[Record]) -> int:
        try:
            self._partitions.append_records(TRANSACTION_STATE, number, records)
        except DuralogError as error:
            reason = f"{TRANSACTION_STATE}-{number}: a state could not be written: {error}"
            self._runtime.log_lines.warn("transactional state not written", reason)
            return _COORDINATOR_CODES.get(code_of(error), code_of(error))
        return NONE

    def load(self) -> dict[str, Transaction]:
        """The last state of each id.

        An id belongs to one partition, by its hash and the number of partitions. If Kafka's tools added partitions,
        another one may have older states. Such a state counts only if it is the only one and the transaction has not
        ended: otherwise it would never end, and readers would wait for ever.
        """
        topic = self._topics.by_name(TRANSACTION_STATE)
        numbers = () if topic is None else topic.partitions
        states: dict[str, Transaction] = {}
        strays: dict[str, Transaction] = {}
        for number in numbers:
            partition = self._partitions.get(TRANSACTION_STATE, number)
            if partition is None:
                continue
            try:
                loaded = self._load_partition(partition.log)
            except Exception as error:  # The ids of the other partitions are still served.
                logger.error("%s", unreadable_text(partition.log, "transactional ids", error))
                self.unreadable.add(number)
                continue
            for transactional_id, transaction in loaded:
                is_own = coordinator_partition(transactional_id, len(numbers)) == number
                (states if is_own else strays)[transactional_id] = transaction
        self.skipped.finish()
        unended = {name: stray for name, stray in strays.items() if stray.status not in AT_REST}
        return unended | states

    def _load_partition(self, log: PartitionLog) -> list[tuple[str, Transaction]]:
        entries = read_log(log, on_skipped=self.skipped.of(log))
        last = {entry.key: entry for entry in entries if isinstance(entry, LoggedRecord)}
        decoded = map(decode, sorted(last.values(), key=lambda entry: entry.offset))
        return [entry for entry in decoded if entry is not None]


def encode(transactional_id: str, transaction: Transaction | None, server_version: int) -> Record:
    """The record of a state, or the tombstone of an id."""
    version = 1 if server_version >= _FLEXIBLE else 0
    record = CoordinatorRecord(
        type_id=_TYPE_ID,
        type_name=None,
        key={"transactional_id": transactional_id},
        version=None if transaction is None else version,
        value=None if transaction is None else _value(transaction, version),
    )
    key, value = encode_coordinator_record(TRANSACTION_STATE_TYPES, record)
    return Record(key=key, value=value)


def _value(transaction: Transaction, version: int) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(number)
    partitions = [{"topic": topic, "partition_ids": numbers} for topic, numbers in by_topic.items()]
    value = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": int(transaction.status),
        "transaction_partitions": None if transaction.status is TransactionStatus.EMPTY else partitions,
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
    }
    if version >= 1:
        value |= {
            "previous_producer_id": transaction.previous_producer_id,
            "next_producer_id": transaction.next_producer_id,
            "client_transaction_version": transaction.client_version,
        }
    return value


def decode(record: Record | LoggedRecord) -> tuple[str, Transaction] | None:
    """An id and its state; None for a tombstone, and for a kind or a version of record that is not known.

    Raises CorruptRecord for an invalid state.
    """
    decoded = decode_loadable(TRANSACTION_STATE, record.key, record.value)
    if isinstance(decoded.key, bytes) or decoded.value is None or isinstance(decoded.value, bytes):
        return None
    value = decoded.value
    status = TransactionStatus(value["transaction_status"])
    partitions = frozenset(
        TopicPartition(topic["topic"], number)
        for topic in value["transaction_partitions"] or ()
        for number in topic["partition_ids"]
    )
    transaction = Transaction(
        producer_id=value["producer_id"],
        previous_producer_id=value.get("previous_producer_id", NO_PRODUCER_ID),
        next_producer_id=value.get("next_producer_id", NO_PRODUCER_ID),
        producer_epoch=value["producer_epoch"],
        timeout_ms=value["transaction_timeout_ms"],
        status=status,
        partitions=frozenset() if status is TransactionStatus.EMPTY else partitions,
        started_ms=value.get("transaction_start_timestamp_ms", NO_TIME),
        updated_ms=value["transaction_last_update_timestamp_ms"],
        client_version=value.get("client_transaction_version", 0),
    )
    return decoded.key["transactional_id"], transaction
