"""InitProducerId, versions 0 to 5: gives a producer its id and epoch. From version 3 on it may send its old ones.

Without a transactional id, it is a new producer. With one, it replaces and fences the previous producer with that id.
Version 4 and later know PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from duralog.broker.topics.producer_ids import ProducerIds
from duralog.broker.transactions.coordinator import ProducerIdentity, TransactionCoordinator
from duralog.broker.transactions.decisions import Producer
from duralog.broker.wire.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    NONE,
    PRODUCER_FENCED,
)
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_KNOWS_FENCED = 4


def handle(producer_ids: ProducerIds, transactions: TransactionCoordinator, request: Request) -> Answer:
    message = request.message
    producer_id = optional(message, "producer_id", NO_PRODUCER_ID)
    producer_epoch = optional(message, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        return refuse(request, INVALID_REQUEST, None)
    expected = None if producer_id == NO_PRODUCER_ID else Producer(producer_id, producer_epoch)
    transactional_id, timeout_ms = message.transactional_id, message.transaction_timeout
    later = DelayedAnswer()

    def go_on() -> None:
        if transactional_id is None:
            producer = _new_producer(producer_ids)
        else:
            producer = transactions.init_producer(transactional_id, timeout_ms, expected)
        later.answer(_fields(producer, request.version))

    producer_ids.when_there(go_on, later)
    return later


def _new_producer(producer_ids: ProducerIds) -> ProducerIdentity:
    producer_id = producer_ids.take()
    if producer_id is None:
        return ProducerIdentity(COORDINATOR_LOAD_IN_PROGRESS)
    return ProducerIdentity(NONE, producer_id, 0)


def _fields(producer: ProducerIdentity, version: int) -> Fields:
    error = producer.error_code
    if error == PRODUCER_FENCED and version < _KNOWS_FENCED:
        error = INVALID_PRODUCER_EPOCH
    return {"error_code": error, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


API = Api(22, "InitProducerId", 0, 5, handle, refuse)
