"""SyncGroup, versions 0 to 5: the leader of a classic group sends the assignments, and each member gets its own.

Version 3: static members. Version 5: the protocol's type and name, which must be those of the group.
"""

from __future__ import annotations

from duralog.broker.groups.classic.groups import SyncRequest
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request

_HAS_PROTOCOL = 5


def handle(groups: GroupCoordinator, request: Request) -> Answer:
    message = request.message
    protocol_type, protocol_name = optional(message, "protocol_type"), optional(message, "protocol_name")
    if request.version >= _HAS_PROTOCOL and (protocol_type is None or protocol_name is None):
        return refuse(request, INCONSISTENT_GROUP_PROTOCOL, None)
    if not message.group_id:
        return refuse(request, INVALID_GROUP_ID, None)
    later = DelayedAnswer()
    try:
        groups.log.check_ready(message.group_id)
        group = groups.by_id.get(message.group_id)
        asked = SyncRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            instance_id=optional(message, "group_instance_id"),
            generation=message.generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments={assignment.member_id: assignment.assignment for assignment in message.assignments},
        )
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return groups.mixed_groups.sync(asked)
        groups.classic.sync(asked, later.answer)
    except GroupRefusal as refusal:
        return refuse(request, refusal.error_code, refusal.message)
    return later


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code, "assignment": b""}


API = Api(14, "SyncGroup", 0, 5, handle, refuse)
