"""Heartbeat, versions 0 to 4: keeps a member of a classic group alive, which learns whether it has to join again.

Version 3: static members.
"""

from __future__ import annotations

from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.wire.error_codes import INVALID_GROUP_ID
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request


def handle(groups: GroupCoordinator, request: Request) -> Answer:
    message = request.message
    if not message.group_id:
        return refuse(request, INVALID_GROUP_ID, None)
    try:
        groups.log.check_ready(message.group_id)
        group = groups.by_id.get(message.group_id)
        instance_id = optional(message, "group_instance_id")
        members = groups.mixed_groups if isinstance(group, ConsumerGroup) else groups.classic
        code = members.heartbeat(message.group_id, message.member_id, instance_id, message.generation_id)
    except GroupRefusal as refusal:
        code = refusal.error_code
    return {"error_code": code}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request, message
    return {"error_code": error_code}


API = Api(12, "Heartbeat", 0, 4, handle, refuse)
