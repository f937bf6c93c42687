"""What clients did and saw. It knows nothing of brokers, logs or clients: a history can be written by hand.

A list is a partition, by any name. A transaction appends values to lists; every value is appended once in a history. A
reader sees values of a list at growing offsets. Times come from one clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Outcome(enum.Enum):
    """What a client knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """And a commit was never asked for."""
    UNKNOWN = "unknown"
    """All of it is there, or nothing."""


@dataclass
class Transaction:
    """Appends of one client, in their order. A single append without a transaction is one with a single value."""

    client: str
    began: float
    appends: list[tuple[str, str]] = field(default_factory=list)
    """The list and the value of each."""
    outcome: Outcome = Outcome.UNKNOWN
    ended: float | None = None
    """When its client knew the outcome."""
    is_single: bool = False
    """It is a single append without a transaction."""


@dataclass
class Reading:
    """What one reader of committed values saw of a list, in the order in which it saw it."""

    reader: str
    name: str
    seen: list[tuple[int, str]] = field(default_factory=list)
    """Offsets and values."""
    is_complete: bool = False
    """It read from the start to the end after all clients were done."""
    is_from_start: bool = False
    """It began at the start of the list."""
    least: int = 0
    """How many values it must have seen."""


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
