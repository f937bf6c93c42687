"""ListGroups, versions 0 to 5: the groups that this broker coordinates, which are all.

Version 4: filters by state. Version 5: filters by type. Both ignore case; an unknown state or type matches no group.
"""

from __future__ import annotations

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.wire.error_codes import NONE
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request


def handle(groups: GroupCoordinator, request: Request) -> Fields:
    states = {state.lower() for state in optional(request.message, "states_filter", ())}
    kinds = {kind.lower() for kind in optional(request.message, "types_filter", ())}
    return {
        "error_code": NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.kind,
            }
            for group in groups.by_id.values()
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ],
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "groups": []}


API = Api(16, "ListGroups", 0, 5, handle, refuse)
