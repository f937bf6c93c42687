"""DeleteGroups, versions 0 to 2: deletes groups without members, and their offsets."""

from __future__ import annotations

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import NONE
from duralog.broker.wire.request import Api, Fields, Request


def handle(groups: GroupCoordinator, request: Request) -> Fields:
    results = []
    for group_id in dict.fromkeys(request.message.groups_names):
        error_code = NONE
        try:
            groups.commits.delete_group(group_id)
        except GroupRefusal as refusal:
            error_code = refusal.error_code
        results.append({"group_id": group_id, "error_code": error_code})
    return {"results": results}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    groups = dict.fromkeys(request.message.groups_names)
    return {"results": [{"group_id": group_id, "error_code": error_code} for group_id in groups]}


API = Api(42, "DeleteGroups", 0, 2, handle, refuse)
