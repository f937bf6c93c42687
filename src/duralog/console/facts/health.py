"""What the health page lists: problems, bytes in quarantine, and compacted partitions as the cleaner sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Severity(IntEnum):
    """The worst has the lowest number."""

    CRITICAL = 1
    """Data cannot be read, or is damaged."""
    WARNING = 2
    """Needs attention."""
    INFO = 3
    """Information."""


@dataclass(frozen=True, slots=True)
class HealthItem:
    severity: Severity
    about: str
    """What it concerns: `orders-0`, `group billing`, `the broker`."""
    sentence: str
    path: str | None = None
    """Of the page that shows more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """Bytes that recovery or repair removed from a log and kept."""

    topic: str
    partition: int
    file: str
    """The log file that they stood in."""
    start: int
    end: int
    reason: str
    offset_before: int | None
    """The last offset that the log kept before them."""
    offset_after: int | None
    time_ms: int
    restored_batches: int
    path: str
    """Of the file that has the bytes now, relative to the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerRow:
    """A compacted partition as the cleaner sees it."""

    topic: str
    partition: int
    checkpoint: int | None
    dirty_ratio: float
    min_dirty_ratio: float
    cleanable_bytes: int
    clean_bytes: int
    is_due: bool
    reason: str
    """Why it is due, or is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerFacts:
    rows: tuple[CleanerRow, ...]
    """The dirtiest first, bounded; `partitions` is their number."""
    partitions: int
    due: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The cleaner's figures in the broker's /metrics, by name; empty without an address."""
    notes: tuple[str, ...] = ()
