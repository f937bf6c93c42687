"""AddPartitionsToTxn, versions 0 to 5: adds partitions to a transaction.

Producers use versions up to 3. Version 4 and later are for brokers, which ask for several producers at once, or only
whether a partition was added. If one partition cannot be added, none of its transaction is. Version 2 and later know
PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duralog.broker.topics.topics import Topics
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.transactions.decisions import Producer
from duralog.broker.wire.error_codes import (
    INVALID_PRODUCER_EPOCH,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.topic_partition import TopicPartition
from duralog.storage.append.producer_entry import EPOCH_BUMPING

_OF_BROKERS = 4
_KNOWS_FENCED = 2


def handle(topics: Topics, transactions: TransactionCoordinator, request: Request) -> Answer:
    message, version = request.message, request.version
    if version >= _OF_BROKERS:
        return {
            "results_by_transaction": [
                {
                    "transactional_id": transaction.transactional_id,
                    "topic_results": _add(
                        topics,
                        transactions,
                        version,
                        transaction.transactional_id,
                        Producer(transaction.producer_id, transaction.producer_epoch),
                        transaction.topics,
                        verify_only=transaction.verify_only,
                    ),
                }
                for transaction in message.transactions
            ]
        }
    results = _add(
        topics,
        transactions,
        version,
        message.v3_and_below_transactional_id,
        Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
        message.v3_and_below_topics,
    )
    return {"results_by_topic_v3_and_below": results}


def _add(
    topics: Topics,
    transactions: TransactionCoordinator,
    version: int,
    transactional_id: str,
    producer: Producer,
    asked: Sequence[Any],
    *,
    verify_only: bool = False,
) -> list[Fields]:
    """The results by topic. If all are the same, they are in the order of the request."""
    partitions = _partitions(asked)
    faults = _faults(topics, version, partitions)
    if any(faults.values()):
        return _by_topic({partition: fault or OPERATION_NOT_ATTEMPTED for partition, fault in faults.items()})
    if verify_only:
        verify = transactions.verify_partition
        return _by_topic({partition: verify(transactional_id, producer, partition) for partition in partitions})
    client_version = EPOCH_BUMPING if version >= _OF_BROKERS else 0
    error = transactions.add_partitions(transactional_id, producer, partitions, client_version=client_version)
    if error == PRODUCER_FENCED and version < _KNOWS_FENCED:
        error = INVALID_PRODUCER_EPOCH
    return _all_alike(asked, error)


def _faults(topics: Topics, version: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Why each partition cannot be added; NONE where it can. Clients may name any number of partitions."""
    faults: dict[TopicPartition, int] = {}
    numbers: dict[str, frozenset[int]] = {}
    for partition in partitions:
        name, number = partition
        topic = topics.by_name(name)
        if topic is not None and name not in numbers:
            numbers[name] = frozenset(topic.partitions)
        if topic is not None and topic.is_internal and version < _OF_BROKERS:
            faults[partition] = TOPIC_AUTHORIZATION_FAILED
        else:
            faults[partition] = NONE if number in numbers.get(name, ()) else UNKNOWN_TOPIC_OR_PARTITION
    return faults


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    """Each one once."""
    named = (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
    return list(dict.fromkeys(named))


def _by_topic(results: Mapping[TopicPartition, int]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for (name, number), error in results.items():
        topics.setdefault(name, []).append({"partition_index": number, "partition_error_code": error})
    return [{"name": name, "results_by_partition": partitions} for name, partitions in topics.items()]


def _all_alike(topics: Iterable[Any], error: int) -> list[Fields]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": error} for number in topic.partitions
            ],
        }
        for topic in topics
    ]


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    if request.version >= _OF_BROKERS:
        return {"error_code": error_code}
    return {"results_by_topic_v3_and_below": _all_alike(request.message.v3_and_below_topics, error_code)}


API = Api(24, "AddPartitionsToTxn", 0, 5, handle, refuse)
