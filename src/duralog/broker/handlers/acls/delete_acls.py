"""DeleteAcls, versions 1 to 3: removes the access control entries that filters select, and answers with them.

An entry is in the answer for each filter that selects it, as in Kafka. What is selected is bounded, since a few
thousand filters and entries could ask for an answer of gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.handlers.acls.create_acls import MOST_ENTRIES
from duralog.broker.handlers.acls.describe_acls import filter_of
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.acls import Acl, TooManyMatches, filter_fault, select_acls

_MOST_ANSWERED = 100_000
_TOO_LARGE = (
    f"The filters select more than {_MOST_ANSWERED} acls, counting those of several filters for each: use fewer filters"
)
_TOO_MANY = f"Cannot remove more than {MOST_ENTRIES} acls in a single delete operation."


def handle(runtime: Runtime, topics: Topics, authorizer: Authorizer | None, request: Request) -> Answer:
    asked = [filter_of(each) for each in request.message.filters]
    if authorizer is None:
        return refuse(request, codes.SECURITY_DISABLED, "No Authorizer is configured.")
    later = DelayedAnswer()

    def work() -> Fields:
        faults = [filter_fault(each) for each in asked]
        filters = [each for each, fault in zip(asked, faults, strict=True) if fault is None]
        try:
            selected = select_acls(runtime.store.acls, filters, _MOST_ANSWERED)
        except TooManyMatches:
            return refuse(request, codes.INVALID_REQUEST, _TOO_LARGE)
        if len(set().union(*selected)) > MOST_ENTRIES:
            return refuse(request, codes.INVALID_REQUEST, _TOO_MANY)
        of_filters = iter(runtime.store.delete_acls(filters))
        results = [
            _result(next(of_filters), codes.NONE, None) if fault is None else _result((), codes.INVALID_REQUEST, fault)
            for fault in faults
        ]
        return {"filter_results": results}

    def then(answer: Fields, error: Exception | None) -> None:
        if error is not None:
            raise error
        authorizer.refresh()
        later.answer(answer)

    topics.change(work, then, later)
    return later


def _result(acls: Sequence[Acl], error_code: int, message: str | None) -> Fields:
    matching = [{"error_code": codes.NONE, "error_message": None, **acl._asdict()} for acl in acls]
    return {"error_code": error_code, "error_message": message, "matching_acls": matching}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    return {"filter_results": [_result((), error_code, message) for _ in request.message.filters]}


API = Api(31, "DeleteAcls", 1, 3, handle, refuse)
