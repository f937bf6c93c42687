"""What `duralog consume` was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    topic: str
    partition: int | None
    """All if None."""
    offset: int | None
    timestamp_ms: int | None
    tail: int | None
    """How many offsets before the end to begin at."""
    group: str | None
    committed: bool
    follow: bool
