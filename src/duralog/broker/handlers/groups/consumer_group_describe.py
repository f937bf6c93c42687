"""ConsumerGroupDescribe, versions 0 and 1: consumer groups, with the current and target assignments of their members.

Version 1 adds the protocol of each member.
"""

from __future__ import annotations

from typing import Any

from duralog.broker.groups.consumer.description import describe
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.runtime import Runtime
from duralog.broker.topics.leadership import ALL_GROUP_OPERATIONS
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import INVALID_GROUP_ID, UNSUPPORTED_VERSION
from duralog.broker.wire.request import Api, Fields, Request


def handle(runtime: Runtime, topics: Topics, groups: GroupCoordinator, request: Request) -> Fields:
    if not groups.consumer_groups.is_enabled:
        return refuse(request, UNSUPPORTED_VERSION, None)
    message = request.message
    # Each once: a small request must not cause any number of copies of a group.
    described = [_describe(runtime, topics, groups, group_id) for group_id in dict.fromkeys(message.group_ids)]
    if message.include_authorized_operations:
        for group in described:
            if group["error_code"] == 0:
                group["authorized_operations"] = ALL_GROUP_OPERATIONS
    return {"groups": described}


def _describe(runtime: Runtime, topics: Topics, groups: GroupCoordinator, group_id: str) -> dict[str, Any]:
    if not group_id:
        return {"group_id": group_id, "error_code": INVALID_GROUP_ID}
    try:
        groups.log.check_ready(group_id)
        group = groups.consumer_groups.consumer_group(group_id)
    except GroupRefusal as refusal:
        return {"group_id": group_id, "error_code": refusal.error_code, "error_message": refusal.message}
    return describe(group, topics, runtime.config.group_consumer_assignors)


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    groups = [{"group_id": group_id, "error_code": error_code} for group_id in request.message.group_ids]
    return {"groups": groups}


API = Api(69, "ConsumerGroupDescribe", 0, 1, handle, refuse)
