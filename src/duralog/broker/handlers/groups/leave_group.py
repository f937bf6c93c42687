"""LeaveGroup, versions 0 to 5: members leave a classic group, or an administrator removes static ones.

Version 3: several members, each with its own result, and by instance ids. Version 5: a reason. Before version 3 there
is one member, whose result is that of the whole request.
"""

from __future__ import annotations

from duralog.broker.groups.classic.groups import LeavingMember
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import INVALID_GROUP_ID, NONE, UNKNOWN_MEMBER_ID
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request

_SEVERAL = 3


def handle(groups: GroupCoordinator, request: Request) -> Answer:
    message = request.message
    if not message.group_id:
        return refuse(request, INVALID_GROUP_ID, None)
    leaving = leaving_members(request)
    try:
        groups.log.check_ready(message.group_id)
        group = groups.by_id.get(message.group_id)
        if isinstance(group, ConsumerGroup):
            members = groups.mixed_groups.leave(message.group_id, leaving)
        else:
            members = groups.classic.leave(message.group_id, leaving)
    except GroupRefusal as refusal:
        if refusal.error_code != UNKNOWN_MEMBER_ID:
            return refuse(request, refusal.error_code, None)
        # There is no such group, so none of them is a member.
        members = [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": UNKNOWN_MEMBER_ID}
            for each in leaving
        ]
    if request.version < _SEVERAL:
        return {"error_code": members[0]["error_code"]}
    return {"error_code": NONE, "members": members}


def leaving_members(request: Request) -> list[LeavingMember]:
    message = request.message
    if request.version < _SEVERAL:
        return [LeavingMember(member_id=message.member_id, instance_id=None)]
    return [
        LeavingMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            reason=optional(member, "reason"),
        )
        for member in message.members
    ]


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "members": []}


API = Api(13, "LeaveGroup", 0, 5, handle, refuse)
