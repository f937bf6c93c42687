"""A record, as it is written and as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from duralog.format.layout import NO_TIMESTAMP

Header = tuple[str, bytes | None]


class TimestampType(IntEnum):
    """What a record's timestamp means. The numbers are those of Kafka and of Spark's Kafka source."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        return {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record. `offset` and `timestamp_type` are set by the log: a writer leaves them alone."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Sequence[Header] = ()
    offset: int = -1
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
