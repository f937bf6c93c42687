"""The record of a classic group in `__consumer_offsets`: written as Kafka 4.3.1 does, read in every version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from duralog.format.internal.coordinator_records import CoordinatorRecord

GROUP_METADATA: Final = 2
_TYPE_NAME: Final = "GroupMetadata"
_VERSION: Final = 3
UNKNOWN_TIME: Final = -1


def group_record(group_id: str, value: Mapping[str, Any] | None) -> CoordinatorRecord:
    """None for the value makes a tombstone."""
    return CoordinatorRecord(
        type_id=GROUP_METADATA,
        type_name=_TYPE_NAME,
        key={"group": group_id},
        version=None if value is None else _VERSION,
        value=value,
    )


def new_group_record(group_id: str, now_ms: int) -> CoordinatorRecord:
    """A group that is about to get its first member."""
    return group_record(
        group_id,
        {
            "protocol_type": "",
            "generation": 0,
            "protocol": None,
            "leader": None,
            "current_state_timestamp": now_ms,
            "members": [],
        },
    )
