"""EndTxn, versions 0 to 5: a producer commits or aborts its transaction.

The answer is sent when the decision is in the log: from then on it is final, and the markers follow. Version 5 is for
transaction version 2: the producer gets its next epoch, and perhaps a new id. Version 2 and later know PRODUCER_FENCED;
older ones get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.transactions.decisions import Producer
from duralog.broker.wire.error_codes import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.storage.append.producer_entry import EPOCH_BUMPING

_KNOWS_FENCED = 2
_BUMPS_EPOCH = 5


def handle(transactions: TransactionCoordinator, request: Request) -> Answer:
    message = request.message
    producer = transactions.end_transaction(
        message.transactional_id,
        Producer(message.producer_id, message.producer_epoch),
        commit=message.committed,
        client_version=EPOCH_BUMPING if request.version >= _BUMPS_EPOCH else 0,
    )
    error = producer.error_code
    if error == PRODUCER_FENCED and request.version < _KNOWS_FENCED:
        error = INVALID_PRODUCER_EPOCH
    return {"error_code": error, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_PRODUCER_EPOCH}


API = Api(26, "EndTxn", 0, 5, handle, refuse)
