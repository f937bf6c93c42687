"""How much of a log can be compacted now, and what prevents the rest. Nothing here touches a file or a thread.

A compacted log has two parts. Below the first dirty offset it was compacted before; from there on it is new.
Of the new part only whole segments are compacted, up to the first uncleanable offset:

- never the active segment: it is still written to;
- nothing from the last stable offset on: an open transaction may still be aborted;
- with `min.compaction.lag.ms`, nothing from the first segment on that has a younger record.

The first dirty offset comes from `cleaner-offset-checkpoint`. If it is outside of the log, the log was trimmed from the
front or has lost its end: the offset is ignored, and everything counts as new.

All rules are Kafka's, down to the bytes that a half-dirty segment counts for on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from duralog.config import TopicConfig
from duralog.errors import CorruptRecord


class DirtySegment(Protocol):
    """What the rules need to know about a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file."""

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of a record; if records have none, the modification time of the file."""

    @property
    def first_timestamp_ms(self) -> int | None:
        """The largest timestamp of the first batch; None without a batch."""


class CleaningLimit(StrEnum):
    """What prevents the rest of a log from being compacted."""

    ACTIVE_SEGMENT = "active segment"
    OPEN_TRANSACTION = "open transaction"
    COMPACTION_LAG = "min.compaction.lag.ms"


DurationText = Callable[[int], str]
"""Writes a number of milliseconds as text. Logs and JSON keep milliseconds, people read days and hours."""


def in_milliseconds(duration_ms: int) -> str:
    return f"{duration_ms} ms"


class FirstUncleanable(NamedTuple):
    """Where compaction has to stop, and why."""

    offset: int
    """The base of a segment. Neither it nor any later segment can be compacted."""
    limit: CleaningLimit
    limit_offset: int
    """Where the active segment, the open transaction or the segment with the young record starts."""
    age_ms: int | None = None
    """Of the newest record in that segment, for `COMPACTION_LAG`; None for the other limits."""
    lag_ms: int | None = None
    """`min.compaction.lag.ms`, for `COMPACTION_LAG`; None for the other limits."""
    cleanable_from_ms: int | None = None
    """When it may be compacted, for `COMPACTION_LAG`; None for the other limits."""

    def reason(self, duration: DurationText = in_milliseconds) -> str:
        if self.age_ms is not None and self.lag_ms is not None:
            return (
                f"the newest record of the segment at offset {self.limit_offset} is {duration(self.age_ms)} old,"
                f" min.compaction.lag.ms is {duration(self.lag_ms)}"
            )
        if self.limit is CleaningLimit.OPEN_TRANSACTION:
            return f"a transaction is open since offset {self.limit_offset}"
        return f"the active segment starts at offset {self.limit_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyRange:
    """What is new in a log since its last compaction, and how much of that can be compacted."""

    first_dirty_offset: int
    correction: str | None
    """Why the checkpoint is wrong, if it is. It has to be written again then."""
    first_uncleanable: FirstUncleanable
    clean_bytes: int
    """Of the segments that were compacted, at least in part."""
    cleanable_bytes: int
    """Of the segments that can be compacted now."""
    overdue_ms: int
    """How much longer than `max.compaction.lag.ms` a record has waited; 0 if none has."""
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether a compaction should start by itself."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > self.min_dirty_ratio)

    def why_not(self, duration: DurationText = in_milliseconds) -> str | None:
        """Why no compaction starts by itself; None if one does."""
        if self.is_eligible:
            return None
        if self.cleanable_bytes == 0:
            reason = self.first_uncleanable.reason(duration)
            return f"nothing can be compacted from offset {self.first_dirty_offset} on: {reason}"
        return (
            f"{self.dirty_ratio:.1%} of the log is new, compaction starts above min.cleanable.dirty.ratio"
            f" ({self.min_dirty_ratio:.1%})"
        )


def first_dirty_offset(checkpoint: int | None, start_offset: int, end_offset: int) -> tuple[int, str | None]:
    """Where the new part of a log begins, and why the checkpoint says something else, if it does."""
    if checkpoint is None:
        return start_offset, None
    if checkpoint < start_offset:
        return start_offset, f"it was compacted up to offset {checkpoint}, but starts at {start_offset}"
    if checkpoint > end_offset:
        reason = f"it was compacted up to offset {checkpoint}, but ends at {end_offset}: all of it counts as new"
        return start_offset, reason
    return checkpoint, None


def dirty_range(
    segments: Sequence[DirtySegment],
    *,
    start_offset: int,
    end_offset: int,
    last_stable_offset: int,
    checkpoint: int | None,
    config: TopicConfig,
    now_ms: int,
) -> DirtyRange:
    """REQUIRES: the segments are all there are, oldest first; the last one is active.

    `checkpoint` is the log's entry in `cleaner-offset-checkpoint`, None if it has none.
    """
    first_dirty, correction = first_dirty_offset(checkpoint, start_offset, end_offset)
    uncleanable = _first_uncleanable(segments, first_dirty, last_stable_offset, config, now_ms)
    begin = min(first_dirty, uncleanable.offset)
    return DirtyRange(
        first_dirty_offset=first_dirty,
        correction=correction,
        first_uncleanable=uncleanable,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in _between(segments, begin, uncleanable.offset)),
        overdue_ms=_overdue_ms(segments, first_dirty, config.max_compaction_lag_ms, now_ms),
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
    )


def _first_uncleanable(
    segments: Sequence[DirtySegment], first_dirty: int, last_stable_offset: int, config: TopicConfig, now_ms: int
) -> FirstUncleanable:
    active_base = segments[-1].base_offset
    found = FirstUncleanable(active_base, CleaningLimit.ACTIVE_SEGMENT, active_base)
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _between(segments, first_dirty, active_base):
            base_offset, largest_ms = segment.base_offset, segment.largest_timestamp_ms
            if largest_ms > now_ms - lag_ms:
                found = FirstUncleanable(
                    *(base_offset, CleaningLimit.COMPACTION_LAG, base_offset),
                    age_ms=now_ms - largest_ms,
                    lag_ms=lag_ms,
                    cleanable_from_ms=largest_ms + lag_ms,
                )
                break
    if last_stable_offset < found.offset:
        found = FirstUncleanable(last_stable_offset, CleaningLimit.OPEN_TRANSACTION, last_stable_offset)
    # The segment that holds it is left alone as a whole.
    following = _between(segments, max(first_dirty, found.offset), active_base)
    return found._replace(offset=next((segment.base_offset for segment in following), active_base))


def _overdue_ms(segments: Sequence[DirtySegment], first_dirty: int, max_lag_ms: int, now_ms: int) -> int:
    latest_ms = now_ms - max_lag_ms
    if latest_ms <= 0:
        return 0  # No timestamp that counts is below this: no need to read the files.
    earliest_ms = latest_ms
    for segment in _between(segments, first_dirty, segments[-1].base_offset):
        try:
            timestamp_ms = segment.first_timestamp_ms
        except CorruptRecord:
            continue  # Damage must not prevent the rest of a log from being compacted.
        if timestamp_ms is not None and timestamp_ms > 0:
            earliest_ms = min(earliest_ms, timestamp_ms)
    return latest_ms - earliest_ms


def _between(segments: Sequence[DirtySegment], begin: int, end: int) -> Iterator[DirtySegment]:
    """The segment that holds the offset `begin`, and those after it that start below `end`."""
    for place, segment in enumerate(segments):
        holds_begin = place + 1 == len(segments) or segments[place + 1].base_offset > begin
        if holds_begin and segment.base_offset < end:
            yield segment
