"""JoinGroup, versions 0 to 9: become, or stay, a member of a classic group. The answer comes with the next generation.

Version 1: a rebalance timeout in addition to the session timeout. Version 4: a new member may get an id first, and has
to join with it. Version 5: static members. Version 7: the protocol type in the answer. Version 9: a leader may have to
skip the assignment.
"""

from __future__ import annotations

from duralog.broker.authorization.authorizer import Authorizer, seen_topics
from duralog.broker.groups.classic.groups import JoinRequest
from duralog.broker.groups.classic.membership import NO_MEMBER
from duralog.broker.groups.consumer.group import ConsumerGroup
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.runtime import Runtime
from duralog.broker.wire.error_codes import INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, DelayedAnswer, Fields, Request

_NEEDS_MEMBER_ID = 4
_NULLABLE_PROTOCOL = 7
_SKIPS_ASSIGNMENT = 9
_NO_GENERATION = -1


def handle(runtime: Runtime, groups: GroupCoordinator, authorizer: Authorizer | None, request: Request) -> Answer:
    message = request.message
    config = runtime.config
    if not message.group_id:
        return joined_fields(request.version, {"error_code": INVALID_GROUP_ID, "member_id": message.member_id})
    if not config.group_min_session_timeout_ms <= message.session_timeout <= config.group_max_session_timeout_ms:
        return joined_fields(request.version, {"error_code": INVALID_SESSION_TIMEOUT, "member_id": message.member_id})
    later = DelayedAnswer()
    try:
        groups.log.check_ready(message.group_id)
        group = groups.by_id.get(message.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            with groups.consumer_groups.regexes.for_sender(seen_topics(authorizer, request)):
                return joined_fields(request.version, groups.mixed_groups.join(join_request(request)))
        groups.classic.join(join_request(request), lambda fields: later.answer(joined_fields(request.version, fields)))
    except GroupRefusal as refusal:
        return refuse(request, refusal.error_code, refusal.message)
    return later


def join_request(request: Request) -> JoinRequest:
    message = request.message
    return JoinRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=optional(message, "group_instance_id"),
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        protocol_type=message.protocol_type,
        protocols=list({protocol.name: (protocol.name, protocol.metadata) for protocol in message.protocols}.values()),
        session_timeout_ms=message.session_timeout,
        rebalance_timeout_ms=optional(message, "rebalance_timeout", message.session_timeout),
        needs_member_id=request.version >= _NEEDS_MEMBER_ID,
        skips_assignment=request.version >= _SKIPS_ASSIGNMENT,
        reason=optional(message, "reason"),
    )


def joined_fields(version: int, fields: Fields) -> Fields:
    """An answer with all required fields; without a protocol, older versions have an empty name."""
    return {
        "generation_id": _NO_GENERATION,
        "protocol_type": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": NO_MEMBER,
        "members": [],
        **fields,
        "protocol_name": fields.get("protocol_name") or (None if version >= _NULLABLE_PROTOCOL else ""),
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return joined_fields(request.version, {"error_code": error_code})


API = Api(11, "JoinGroup", 0, 9, handle, refuse)
