"""DescribeTransactions, version 0: the states of transactional ids."""

from __future__ import annotations

from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.transactions.state import STATUS_NAMES
from duralog.broker.wire.error_codes import INVALID_REQUEST, NOT_COORDINATOR, TRANSACTIONAL_ID_NOT_FOUND
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(transactions: TransactionCoordinator, request: Request) -> Answer:
    return {"transaction_states": [_describe(transactions, id_) for id_ in request.message.transactional_ids]}


def _describe(transactions: TransactionCoordinator, transactional_id: str) -> Fields:
    if not transactional_id:
        return _error(transactional_id, INVALID_REQUEST)
    if transactions.log.partition_for(transactional_id) is None:
        return _error(transactional_id, NOT_COORDINATOR)
    known = transactions.states.get(transactional_id)
    if known is None:
        return _error(transactional_id, TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        topics.setdefault(topic, []).append(number)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": STATUS_NAMES[known.status],
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def _error(transactional_id: str, error_code: int) -> Fields:
    return {"error_code": error_code, "transactional_id": transactional_id}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {"transaction_states": [_error(id_, error_code) for id_ in request.message.transactional_ids]}


API = Api(65, "DescribeTransactions", 0, 0, handle, refuse)
