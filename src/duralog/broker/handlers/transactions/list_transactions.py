"""ListTransactions, versions 0 to 2: the transactional producers, by state and by id.

Version 1 adds a minimum duration, version 2 a pattern for transactional ids.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.broker.runtime import Runtime
from duralog.broker.topics.patterns import compile_pattern
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.transactions.state import STATUS_NAMES, Transaction
from duralog.broker.wire.error_codes import INVALID_REGULAR_EXPRESSION, NONE
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request

_ANY_DURATION = -1


def handle(runtime: Runtime, transactions: TransactionCoordinator, request: Request) -> Answer:
    message = request.message
    pattern = optional(message, "transactional_id_pattern")
    matches = _matcher(pattern) if pattern else _any_id
    if matches is None:
        return refuse(request, INVALID_REGULAR_EXPRESSION, None)
    states, producer_ids = frozenset(message.state_filters), frozenset(message.producer_id_filters)
    duration_ms, now_ms = optional(message, "duration_filter", _ANY_DURATION), runtime.clock()

    def is_wanted(transactional_id: str, transaction: Transaction) -> bool:
        return (
            (not producer_ids or transaction.producer_id in producer_ids)
            and (not states or STATUS_NAMES[transaction.status] in states)
            and (duration_ms < 0 or now_ms - transaction.started_ms > duration_ms)
            and matches(transactional_id)
        )

    return {
        "error_code": NONE,
        "unknown_state_filters": sorted(states.difference(STATUS_NAMES.values())),
        "transaction_states": [
            {
                "transactional_id": transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": STATUS_NAMES[transaction.status],
            }
            for transactional_id, transaction in transactions.states.items()
            if is_wanted(transactional_id, transaction)
        ],
    }


def _any_id(_: str) -> bool:
    return True


def _matcher(pattern: str) -> Callable[[str], bool] | None:
    """Matches a whole id against the pattern; None if the pattern is invalid."""
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "unknown_state_filters": [], "transaction_states": []}


API = Api(66, "ListTransactions", 0, 2, handle, refuse)
