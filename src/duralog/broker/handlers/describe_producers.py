"""DescribeProducers, version 0: what partitions remember of their idempotent and transactional producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duralog.broker import error_codes as codes
from duralog.broker.request import Answer, Api, Fields, Request
from duralog.broker.topic_faults import UNKNOWN_TOPIC, Fault, name_fault

if TYPE_CHECKING:
    from duralog.broker.broker import Broker

_NO_PARTITION = Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, None)
_OFFLINE = Fault(codes.KAFKA_STORAGE_ERROR, None)


MOST_PRODUCERS = 100_000
"""Of one answer. A small request could ask for the same partition any number of times."""
_TOO_MANY = Fault(codes.POLICY_VIOLATION, f"One request is told of {MOST_PRODUCERS} producers at most.")


def handle(broker: Broker, request: Request) -> Answer:
    topics = []
    room = MOST_PRODUCERS
    for topic in request.message.topics:
        partitions = []
        for number in topic.partition_indexes:
            partition = _partition(broker, topic.name, number) if room > 0 else _refused(number, _TOO_MANY)
            partitions.append(partition)
            room -= len(partition["active_producers"])
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _partition(broker: Broker, name: str, number: int) -> Fields:
    partition = broker.partitions.get(name, number)
    if partition is not None:
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
                for producer in partition.log.producers()
            ],
        }
    if broker.partitions.is_offline(name, number):
        return _refused(number, _OFFLINE)
    if broker.topics.by_name(name) is not None:
        return _refused(number, _NO_PARTITION)
    return _refused(number, name_fault(name) or UNKNOWN_TOPIC)


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


API = Api(61, "DescribeProducers", 0, 0, handle, refuse)
