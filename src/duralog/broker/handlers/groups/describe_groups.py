"""DescribeGroups, versions 0 to 6: classic groups with their members, their metadata and assignments.

Version 3: authorized operations. Version 4: static members. Version 6: a group that does not exist, or is not a classic
one, is an error; before, it is described as dead. A group is described once, however often it is named: a small request
must not cause any number of copies of the members' metadata.
"""

from __future__ import annotations

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.leadership import ALL_GROUP_OPERATIONS, NOT_ASKED
from duralog.broker.wire.error_codes import GROUP_ID_NOT_FOUND, NONE
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Api, Fields, Request

_KNOWS_NOT_FOUND = 6


def handle(groups: GroupCoordinator, request: Request) -> Fields:
    operations = (
        ALL_GROUP_OPERATIONS if optional(request.message, "include_authorized_operations", False) else NOT_ASKED
    )
    asked = dict.fromkeys(request.message.groups)
    return {"groups": [_described(groups, request, group_id, operations) for group_id in asked]}


def _described(groups: GroupCoordinator, request: Request, group_id: str, operations: int) -> Fields:
    try:
        groups.log.check_ready(group_id)
        group = groups.classic_group(group_id)
    except GroupRefusal as refusal:
        if refusal.error_code != GROUP_ID_NOT_FOUND:
            return _group_fields(group_id, "", refusal.error_code)
        if request.version >= _KNOWS_NOT_FOUND:
            return _group_fields(group_id, ClassicState.DEAD, GROUP_ID_NOT_FOUND, message=refusal.message)
        return _group_fields(group_id, ClassicState.DEAD, NONE, operations=operations)
    return {
        **_group_fields(group_id, group.state, NONE, operations=operations),
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name or "" if group.is_in(ClassicState.STABLE) else "",
        "members": _members(group),
    }


def _members(group: ClassicGroup) -> list[Fields]:
    """Only a stable group has metadata: otherwise its members have not agreed on a protocol."""
    name = group.protocol_name if group.is_in(ClassicState.STABLE) else None
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": b"" if name is None else member.metadata(name),
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]


def _group_fields(
    group_id: str, state: str, error_code: int, *, message: str | None = None, operations: int = NOT_ASKED
) -> Fields:
    return {
        "error_code": error_code,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": operations,
    }


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {"groups": [_group_fields(group_id, "", error_code) for group_id in request.message.groups]}


API = Api(15, "DescribeGroups", 0, 6, handle, refuse)
