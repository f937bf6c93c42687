"""CreateAcls, versions 1 to 3: adds access control entries. One that is refused does not keep the others from it."""

from __future__ import annotations

from typing import Any

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import InvalidMessage
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request
from duralog.storage.metadata.acls import Acl, Operation, PatternType, Permission, ResourceType, acl_fault

MOST_ENTRIES = 10_000
"""In one change. Kafka refuses larger ones, since a change is one batch."""


def handle(runtime: Runtime, topics: Topics, authorizer: Authorizer | None, request: Request) -> Answer:
    acls = [_acl(creation) for creation in request.message.creations]
    if any(_is_unknown(acl) for acl in acls):
        # As in Kafka, which does not take this for a request.
        raise InvalidMessage("CreatableAcls contain unknown elements")
    if authorizer is None:
        return refuse(request, codes.SECURITY_DISABLED, "No Authorizer is configured.")
    if any(_is_for_filters(acl) for acl in acls):
        # As in Kafka, for the whole request.
        return refuse(request, codes.UNKNOWN_SERVER_ERROR, None)
    faults = [acl_fault(acl) for acl in acls]
    valid = [acl for acl, fault in zip(acls, faults, strict=True) if fault is None]
    if len(valid) > MOST_ENTRIES:
        return refuse(request, codes.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    results = [_result(codes.NONE, "") if fault is None else _result(codes.INVALID_REQUEST, fault) for fault in faults]
    if not valid:
        return {"results": results}
    later = DelayedAnswer()

    def then(_: Any, error: Exception | None) -> None:
        if error is not None:
            raise error
        authorizer.refresh()
        later.answer({"results": results})

    topics.change(lambda: runtime.store.create_acls(valid), then, later)
    return later


def _acl(creation: Any) -> Acl:
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _is_unknown(acl: Acl) -> bool:
    return 0 in (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type)


def _is_for_filters(acl: Acl) -> bool:
    return (
        acl.resource_type == ResourceType.ANY
        or acl.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == Operation.ANY
        or acl.permission_type == Permission.ANY
    )


def _result(error_code: int, message: str | None) -> Fields:
    return {"error_code": error_code, "error_message": message}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    return {"results": [_result(error_code, message) for _ in request.message.creations]}


API = Api(30, "CreateAcls", 1, 3, handle, refuse)
