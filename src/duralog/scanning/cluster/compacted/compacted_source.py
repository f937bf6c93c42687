"""Which copy the compacted part of a partition is read from: one for all of it, so that no deleted key comes back.

Above the compacted part, what is damaged in one copy is read from another, batch by batch (`sound_slices`). Here that
would mix the work of two cleaners. Which copy is whole must be known before the first record is read, by all tasks
alike: so the chosen copy's bytes of this part are checked when a read is planned. The others are read only if it is
damaged. What was found is remembered as long as the files stay the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from duralog.format.topic_partition import TopicPartition
from duralog.scanning.cluster.batch_rows import CopyRows
from duralog.scanning.cluster.cluster import Copies
from duralog.scanning.cluster.compacted.compacted_part import CompactedPart, belonging_of
from duralog.storage.disk.background import wall_clock_ms

_MOST_REMEMBERED = 4096
_SETTLED_MS = 10_000
"""What is known of files that were changed later than this is not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPart:
    """Offsets of a compacted part of which no copy is whole. What the copies have is read."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def reason(self) -> str:
        return "no copy of the compacted part is whole: records may be missing, and deleted keys may come back"

    def __str__(self) -> str:
        return f"{self.place}: offsets {self.first_offset} to {self.last_offset}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__slots__, "reason")}


@dataclass(frozen=True, slots=True)
class CompactedSource:
    """What to read instead of the chosen copy."""

    copy: int | None
    """The number of the copy to read; None if none is whole."""
    end_offset: int
    """Where the compacted part ends in that copy, or in the chosen one."""


def compacted_source(copies: Copies) -> CompactedSource | None:
    """None if the chosen copy is right: nothing of it is damaged there."""
    dense_from = copies.dense_from
    if len(copies.copies) < 2 or (dense_from is not None and dense_from <= copies.choice.start_offset):
        return None
    return _remembered(copies)


def mixed_part(partition: TopicPartition, first_offset: int, end_offset: int) -> MixedPart:
    return MixedPart(
        topic=partition.topic, partition=partition.partition, first_offset=first_offset, last_offset=end_offset - 1
    )


def _found(copies: Copies) -> CompactedSource | None:
    choice = copies.choice
    rows = [
        CopyRows(copy, number, is_preallocated=copies.chosen.log.config.preallocate)
        for number, copy in enumerate(copies.copies)
    ]
    part = CompactedPart(copies, rows, belonging_of(copies), copies.order)
    is_whole = part.is_whole(choice.copy)
    if is_whole and not _is_short(copies):
        return None
    donor = part.whole_copy(choice.copy)
    return CompactedSource(None, part.reach(choice.copy)) if donor is None else CompactedSource(donor.copy, donor.reach)


def _is_short(copies: Copies) -> bool:
    """Whether the chosen copy ends in the compacted part, before another one does."""
    if copies.dense_from is None:
        return False
    ends = [min(agreed, copies.dense_from) for agreed in copies.choice.agreed]
    return ends[copies.choice.copy] < max(ends)


_known: dict[Hashable, CompactedSource | None] = {}
"""Several threads use it: each step is atomic, and what is lost is found again."""


def _remembered(copies: Copies) -> CompactedSource | None:
    key = _identity(copies)
    with suppress(KeyError):
        return _known[key]
    found = _found(copies)
    newest_ms = max(each.modified_ms for copy in copies.copies for each in copy.view.segments)
    # A change in the same moment may leave size and time as they are.
    if wall_clock_ms() - newest_ms >= _SETTLED_MS:
        if len(_known) >= _MOST_REMEMBERED:
            _known.clear()
        _known[key] = found
    return found


def _identity(copies: Copies) -> Hashable:
    """Of the files below the end of the compacted part, and of what decides which batches count."""
    return (
        copies.partition,
        copies.choice,
        copies.dense_from,
        tuple(
            (
                copy.url,
                copy.state,
                tuple((each.base_offset, each.size_bytes, each.modified_ms) for each in copy.view.segments),
            )
            for copy in copies.copies
        ),
    )
