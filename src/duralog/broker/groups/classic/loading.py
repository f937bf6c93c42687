"""A classic group from its record.

A group with members was stable when it was written: what a rebalance changes is written when it is over. Of a member's
protocols, the record has only the one that the group used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from duralog.broker.groups.classic.group import ClassicGroup, ClassicState
from duralog.broker.groups.classic.members import ClassicMember


def load_group(group_id: str, value: Mapping[str, Any], clock: Callable[[], int]) -> ClassicGroup:
    """REQUIRES: the fields of a GroupMetadataValue, of any version, that can be loaded (`format.loadable_records`)."""
    since_ms = value.get("current_state_timestamp", -1)
    group = ClassicGroup(
        group_id,
        clock,
        state=ClassicState.STABLE if value["members"] else ClassicState.EMPTY,
        generation=value["generation"],
        protocol_type=value["protocol_type"] or None,
        state_timestamp_ms=None if since_ms == -1 else since_ms,
    )
    group.protocol_name = value["protocol"]
    group.leader_id = value["leader"] if value["members"] else None
    for fields in value["members"]:
        rebalance_timeout_ms = fields.get("rebalance_timeout", -1)
        session_timeout_ms = fields["session_timeout"]
        member = ClassicMember(
            fields["member_id"],
            instance_id=fields.get("group_instance_id"),
            client_id=fields["client_id"],
            client_host=fields["client_host"],
            rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            protocols=[(value["protocol"] or "", fields["subscription"])],
            assignment=fields["assignment"],
        )
        group.add(member, value["protocol_type"])
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)
    group.learn_subscriptions()
    return group
