"""The differences that are meant, each with its reason. Everything else that differs is a fault."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oracle.conformance.scenario import Difference


@dataclass(frozen=True)
class Meant:
    """Patterns that the whole of a scenario's name and of a field's path match."""

    scenario: str
    field: str
    because: str

    def covers(self, difference: Difference) -> bool:
        return bool(re.fullmatch(self.scenario, difference.scenario) and re.fullmatch(self.field, difference.field))


_NOT_OFFERED = {
    "delegation tokens are not served": (
        "create_delegation_token", "renew_delegation_token", "expire_delegation_token", "describe_delegation_token",
    ),
    "there is one node: nothing to elect, to move or to vote on": (
        "add_raft_voter", "remove_raft_voter", "unregister_broker",
    ),
    "share groups and streams groups are not served": (
        "share_group_heartbeat", "share_group_describe", "share_fetch", "share_acknowledge",
        "initialize_share_group_state", "read_share_group_state", "write_share_group_state",
        "delete_share_group_state", "read_share_group_state_summary", "describe_share_group_offsets",
        "alter_share_group_offsets", "delete_share_group_offsets", "streams_group_heartbeat",
        "streams_group_describe",
    ),
}  # fmt: skip

MEANT: tuple[Meant, ...] = (
    *(
        Meant(r"api-versions-v\d", rf"\.api_keys\.{api}", because)
        for because, apis in _NOT_OFFERED.items()
        for api in apis
    ),
    Meant(
        r"api-versions-v\d",
        r"\.(supported|finalized)_features\.(share|streams)\.version",
        "share groups and streams groups are not served",
    ),
    *(
        Meant(scenario, field, "what is named twice is told once: a small request must not have a huge answer")
        for scenario, field in (
            (r"describe-groups-v\d", r"\.groups\[1\]"),
            (r"offset-fetch-v\d+", r"(\.groups\[0\])?\.topics\[0\]\.partitions\[1\]"),
        )
    ),
    Meant(
        "describe-configs-of-the-broker",
        r"\.results\[0\]\.configs\[11\]\..*",
        "process.roles: this is no node of a quorum",
    ),
    Meant(
        "describe-quorum-v2",
        r"\.nodes\[0\]\.listeners\[0\]",
        "the one node has no listener for controllers",
    ),
    Meant(
        "create-topics-with-bad-names",
        r"\.topics\[1\]\..*",
        "two names that collide in one request: Kafka takes both, but refuses the second when it comes alone",
    ),
    Meant(
        "strings-that-are-too-long",
        r"\.topics\[0\]\.error_(code|message)",
        "a name so long that Kafka's own message about it is longer than a string may be: it answers an unknown error",
    ),
    Meant(
        "list-offsets-of-odd-logs",
        r"\.topics\[0\]\.partitions\[0\]\.(timestamp|offset|leader_epoch)",
        "the offset of the largest time after DeleteRecords: Kafka tells one that can no longer be read",
    ),
)


def is_deliberate(difference: Difference) -> bool:
    return any(meant.covers(difference) for meant in MEANT)
