"""A slice, the input of a task: a range of bytes of one log file, and the range of offsets that it covers.

Slices are cut at index entries. An entry has the position of a batch and its last offset, but not its first. So the
boundary between two slices is that last offset, and the bytes of that batch belong to both: each takes the records on
its own side. Every offset of a planned range belongs to exactly one slice, even if the file is replaced: a reader that
finds another file at the path reads the same offsets from the current files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from duralog.errors import OffsetOutOfRange
from duralog.format.checkpoints import EpochStart
from duralog.format.index_entries import AbortedTransaction
from duralog.scanning.locations import Location
from duralog.storage.log.isolation import Isolation

_TASK_BYTES = 128 << 20


class FileIdentity(NamedTuple):
    """Identifies a file that is no longer written to."""

    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Source:
    """A copy of a partition, as far as it has the batches of the log."""

    location: Location
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class LogSources:
    """The copies of a partition, the chosen one first."""

    sources: tuple[Source, ...]
    epochs: tuple[EpochStart, ...]
    """The history of the log: a batch with another epoch belongs to another history."""
    dense_from: int | None
    """From this offset on, a missing offset is damage; None if that is not known."""
    whole_from: int | None = None
    """From this offset on, one that no copy has is lost; None if it may be compacted: the topic's config is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    location: Location
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    """One above the last offset."""
    path: str
    """Of the `.log` file, in the location's file system."""
    base_offset: int
    """Of the segment."""
    position: int
    """Where a batch starts, before which there is none of the offsets."""
    end_position: int
    """Where a batch ends, after which there is none of the offsets."""
    identity: FileIdentity | None
    """None for the active segment, which grows: it is recognised by its batches."""
    topic_id: str | None = None
    """None for a topic without one. Another id means another topic of the same name, with other records."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    aborted: tuple[AbortedTransaction, ...] = field(default=(), repr=False)
    """Those with records among the offsets, for `read_committed`."""
    copies: LogSources | None = field(default=None, repr=False)
    """Other copies with the same batches, if the directories of a cluster are read."""

    @property
    def is_from_other_copy(self) -> bool:
        """Whether the slice is read from another copy than the chosen one."""
        return self.copies is not None and self.copies.sources[0].location != self.location

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: offsets {self.start_offset} to {self.end_offset - 1},"
            f" {self.path} from {self.position} to {self.end_position}"
        )


def slices_by_task(slices: Iterable[Slice], size_bytes: int = _TASK_BYTES) -> list[tuple[Slice, ...]]:
    """Neighbouring slices, in groups of what one task should read."""
    tasks: list[tuple[Slice, ...]] = []
    waiting: list[Slice] = []
    waiting_bytes = 0
    for found in slices:
        if waiting and waiting_bytes + found.size_bytes > size_bytes:
            tasks.append(tuple(waiting))
            waiting, waiting_bytes = [], 0
        waiting.append(found)
        waiting_bytes += found.size_bytes
    return [*tasks, tuple(waiting)] if waiting else tasks


PARTITION_GONE = "the partition is gone"
CREATED_AGAIN = "the topic was deleted and created again since"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """Requested offsets that do not exist, or no longer exist."""

    topic: str
    partition: int
    asked_start: int
    asked_end: int
    available_start: int
    available_end: int
    reason: str | None = None
    """Why none of them exists, if known."""

    def __str__(self) -> str:
        asked = (
            f"offset {self.asked_start} was"
            if self.asked_start == self.asked_end
            else f"offsets {self.asked_start} to {self.asked_end} were"
        )
        reason = self.reason or f"the log goes from {self.available_start} to {self.available_end}"
        return f"{self.topic}-{self.partition}: {asked} asked for, but {reason}"

    def as_error(self) -> OffsetOutOfRange:
        return OffsetOutOfRange(str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptBytes:
    """Bytes of a log that were skipped, and those of a slice's offsets that may have been in them.

    Two slices that share a batch may both report the same bytes, but not the same offsets.
    """

    topic: str
    partition: int
    path: str
    position: int
    end_position: int
    first_offset: int
    last_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: position {self.position}: {self.reason}; {self.end_position - self.position} bytes,"
            f" offsets {self.first_offset} to {self.last_offset} of {self.topic}-{self.partition}"
        )
