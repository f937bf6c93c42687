"""AddOffsetsToTxn, versions 0 to 4: adds the offsets of a group to a transaction.

What is added is the partition of `__consumer_offsets` that has the group. Version 2 and later know PRODUCER_FENCED;
older ones get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.transactions.decisions import Producer
from duralog.broker.wire.error_codes import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.topic_partition import TopicPartition

_KNOWS_FENCED = 2


def handle(groups: GroupCoordinator, transactions: TransactionCoordinator, request: Request) -> Answer:
    message = request.message
    error = transactions.add_partitions(
        message.transactional_id,
        Producer(message.producer_id, message.producer_epoch),
        [TopicPartition(CONSUMER_OFFSETS, groups.log.partition_for(message.group_id))],
        client_version=0,
    )
    if error == PRODUCER_FENCED and request.version < _KNOWS_FENCED:
        error = INVALID_PRODUCER_EPOCH
    return {"error_code": error}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code}


API = Api(25, "AddOffsetsToTxn", 0, 4, handle, refuse)
