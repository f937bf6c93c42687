"""DescribeAcls, versions 1 to 3: the access control entries that a filter selects, by their resource patterns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from duralog.broker.authorization.authorizer import Authorizer
from duralog.broker.runtime import Runtime
from duralog.broker.wire import error_codes as codes
from duralog.broker.wire.messages import InvalidMessage
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.storage.metadata.acls import Acl, AclFilter

_AT_ONCE = 1_000
"""More entries than this are filtered on a worker thread."""


def handle(runtime: Runtime, authorizer: Authorizer | None, request: Request) -> Answer:
    wanted = filter_of(request.message)
    if authorizer is None:
        return refuse(request, codes.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    acls = runtime.store.acls
    if len(acls) <= _AT_ONCE:
        return _described(acls, wanted)
    return runtime.background.answer(lambda: _described(acls, wanted))


def filter_of(asked: Any) -> AclFilter:
    """The filter of a DescribeAcls request, or one of a DeleteAcls request.

    As in Kafka, one with an UNKNOWN element is not a request at all.
    """
    if 0 in (asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type):
        raise InvalidMessage("a filter of ACLs contains UNKNOWN elements")
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _described(acls: Iterable[Acl], wanted: AclFilter) -> Fields:
    resources: dict[tuple[int, str, int], list[Fields]] = {}
    for acl in filter(wanted.matches, acls):
        resources.setdefault(acl[:3], []).append(
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission_type,
            }
        )
    described = [
        {"resource_type": resource_type, "resource_name": name, "pattern_type": pattern_type, "acls": entries}
        for (resource_type, name, pattern_type), entries in resources.items()
    ]
    return {"error_code": codes.NONE, "error_message": "", "resources": described}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message, "resources": []}


API = Api(29, "DescribeAcls", 1, 3, handle, refuse)
