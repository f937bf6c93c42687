"""DescribeProducers, version 0: the producer state of partitions: idempotent and transactional producers."""

from __future__ import annotations

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topic_faults import UNKNOWN_TOPIC, Fault, name_fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import encode_response
from duralog.broker.wire.request import Answer, Api, Fields, RawAnswer, Request
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.metadata.acls import Operation, ResourceType

_KEY = 61
_NO_PARTITION = Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, None)
_OFFLINE = Fault(codes.KAFKA_STORAGE_ERROR, None)
_NOT_ALLOWED = Fault(codes.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


MOST_PRODUCERS = 100_000
"""Of one answer. A small request could ask for the same partition any number of times."""
_TOO_MANY = Fault(codes.POLICY_VIOLATION, f"One response has {MOST_PRODUCERS} producers at most.")


def handle(
    runtime: Runtime, topics: Topics, partitions: Partitions, authorizer: Authorizer | None, request: Request
) -> Answer:
    """A partition may have very many producers: a worker thread lists them and encodes the answer."""
    asked: list[tuple[str, list[tuple[int, PartitionLog | Fault]]]] = []
    for topic in request.message.topics:
        name, numbers = topic.name, topic.partition_indexes
        if authorizer is None or authorizer.allows(request, Operation.READ, ResourceType.TOPIC, name):
            asked.append((name, [(number, _find(topics, partitions, name, number)) for number in numbers]))
        else:
            asked.append((name, [(number, _NOT_ALLOWED) for number in numbers]))
    version = request.version
    return runtime.background.answer(lambda: RawAnswer([encode_response(_KEY, version, _describe(asked))]))


def _find(topics: Topics, partitions: Partitions, name: str, number: int) -> PartitionLog | Fault:
    partition = partitions.get(name, number)
    if partition is not None:
        return partition.log
    if partitions.is_offline(name, number):
        return _OFFLINE
    if topics.by_name(name) is not None:
        return _NO_PARTITION
    return name_fault(name) or UNKNOWN_TOPIC


def _describe(asked: list[tuple[str, list[tuple[int, PartitionLog | Fault]]]]) -> Fields:
    topics = []
    room = MOST_PRODUCERS
    for name, numbers in asked:
        partitions = []
        for number, found in numbers:
            if isinstance(found, Fault):
                partitions.append(_refused(number, found))
            elif room <= 0:
                partitions.append(_refused(number, _TOO_MANY))
            else:
                partitions.append(_described(number, found))
                room -= len(partitions[-1]["active_producers"])
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


def _described(number: int, log: PartitionLog) -> Fields:
    return {
        "partition_index": number,
        "error_code": codes.NONE,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.timestamp_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.transaction_first_offset,
            }
            for producer in log.producers()
        ],
    }


def _refused(number: int, fault: Fault) -> Fields:
    return {
        "partition_index": number,
        "error_code": fault.code,
        "error_message": fault.message,
        "active_producers": [],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    fault = Fault(error_code, message)
    return {
        "topics": [
            {"name": topic.name, "partitions": [_refused(number, fault) for number in topic.partition_indexes]}
            for topic in request.message.topics
        ]
    }


API = Api(_KEY, "DescribeProducers", 0, 0, handle, refuse)
