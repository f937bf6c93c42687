"""ConsumerGroupHeartbeat, versions 0 and 1: the whole consumer group protocol in one request.

Version 1: the client chooses its member id, and may subscribe by a regular expression.
"""

from __future__ import annotations

from duralog.broker.authorization.authorizer import Authorizer, seen_topics
from duralog.broker.groups.consumer.heartbeat_request import read_heartbeat
from duralog.broker.groups.consumer.member import LEAVING_EPOCH, STATIC_LEAVING_EPOCH
from duralog.broker.groups.consumer.target_assignment import offered_assignors
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.runtime import Runtime
from duralog.broker.wire.error_codes import UNSUPPORTED_VERSION
from duralog.broker.wire.request import Api, Fields, Request


def handle(runtime: Runtime, groups: GroupCoordinator, authorizer: Authorizer | None, request: Request) -> Fields:
    if not groups.consumer_groups.is_enabled:
        return refuse(request, UNSUPPORTED_VERSION, None)
    try:
        asked = read_heartbeat(request, offered_assignors(runtime.config.group_consumer_assignors))
        groups.log.check_ready(asked.group_id)
        if asked.epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return groups.consumer_groups.leave(asked)
        with groups.consumer_groups.regexes.for_sender(seen_topics(authorizer, request)):
            return groups.consumer_groups.heartbeat(asked)
    except GroupRefusal as refusal:
        return refuse(request, refusal.error_code, refusal.message)


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del request
    return {"error_code": error_code, "error_message": message}


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, handle, refuse)
