"""Records of a whole topic: which are wanted, a page of them, and the progress of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duralog.console.facts.records import ShownRecord
from duralog.console.facts.runs import RunState
from duralog.filters.conditions import Condition

MOST_MATCHES = 500
"""The most matches that a search keeps. A download has all."""

Cursor = Mapping[int, int]
"""A place in a topic: an offset for each partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRecords:
    topic: str
    partitions: tuple[int, ...]
    where: Condition | None = None
    from_ms: int | None = None
    before_ms: int | None = None
    """With either, records without a timestamp are left out."""
    from_offset: int | None = None
    before_offset: int | None = None
    newest_first: bool = True


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    partition: int
    record: ShownRecord

    @property
    def order(self) -> tuple[int, int, int]:
        """By time, then partition, then offset."""
        return self.record.timestamp_ms, self.partition, self.record.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    """For each partition, all records from the offset of `first` up to, not including, that of `end`."""

    records: tuple[PlacedRecord, ...]
    """The oldest first, also on a page that was read backwards."""
    first: Cursor
    end: Cursor
    is_at_start: bool
    is_at_end: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchProgress:
    """Of a search or a download."""

    state: RunState = RunState.RUNNING
    bytes_read: int = 0
    bytes_total: int | None = None
    """None through a broker, which does not know."""
    records_read: int = 0
    matches: int = 0
    share: float = 0.0
    """0 to 1."""
    is_cut: bool = False
    """There are more matches than `MOST_MATCHES`."""
    is_about: bool = False
    """Where times go back, records that were not read may belong to the matches that are shown."""
    notes: tuple[str, ...] = ()
    error: str | None = None
