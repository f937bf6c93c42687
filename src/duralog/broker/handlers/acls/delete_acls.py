"""DeleteAcls, versions 1 to 3: removes the access control entries that filters select, and answers with them."""

from __future__ import annotations

from collections.abc import Sequence

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.handlers.acls.create_acls import MOST_ENTRIES
from duralog.broker.handlers.acls.describe_acls import filter_of
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.acls import Acl, filter_fault

_TOO_MANY = f"Cannot remove more than {MOST_ENTRIES} acls in a single delete operation."


def handle(runtime: Runtime, topics: Topics, authorizer: Authorizer | None, request: Request) -> Answer:
    asked = [filter_of(each) for each in request.message.filters]
    faults = [filter_fault(each) for each in asked]
    filters = [each for each, fault in zip(asked, faults, strict=True) if fault is None]
    if authorizer is None:
        return refuse(request, codes.SECURITY_DISABLED, "No Authorizer is configured.")
    later = DelayedAnswer()

    def work() -> list[list[Acl]] | None:
        selected = {acl for acl in runtime.store.acls if any(each.matches(acl) for each in filters)}
        return runtime.store.delete_acls(filters) if len(selected) <= MOST_ENTRIES else None

    def then(removed: list[list[Acl]] | None, error: Exception | None) -> None:
        if error is not None:
            raise error
        authorizer.refresh()
        if removed is None:
            later.answer(refuse(request, codes.INVALID_REQUEST, _TOO_MANY))
        else:
            of_filters = iter(removed)
            results = [
                _result(next(of_filters), codes.NONE, None)
                if fault is None
                else _result((), codes.INVALID_REQUEST, fault)
                for fault in faults
            ]
            later.answer({"filter_results": results})

    topics.change(work, then, later)
    return later


def _result(acls: Sequence[Acl], error_code: int, message: str | None) -> Fields:
    matching = [{"error_code": codes.NONE, "error_message": None, **acl._asdict()} for acl in acls]
    return {"error_code": error_code, "error_message": message, "matching_acls": matching}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    return {"filter_results": [_result((), error_code, message) for _ in request.message.filters]}


API = Api(31, "DeleteAcls", 1, 3, handle, refuse)
