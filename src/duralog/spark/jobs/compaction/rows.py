"""What the steps of a shuffled compaction's first pass exchange: segments to read, rows to send, findings.

The steps themselves are in `keys` and `marks`, and Spark's part in them in `frames`. Everything
here can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from duralog.columnar.pieces import Piece
from duralog.config import TopicConfig
from duralog.errors import CompactionStopped, CorruptRecord
from duralog.format.index_entries import AbortedTransaction
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import SegmentFiles, segment_options
from duralog.storage.segment.source import SegmentSource


class RowKind(IntEnum):
    ASKED = 0
    """Digests and offsets of records that were compacted before."""
    NEW = 1
    """Digests and their last offsets in a part of a segment."""
    BITS = 2
    """Superseded offsets of a segment as bits: bit i % 8 of byte i // 8 is that of the first offset + i."""
    OFFSETS = 3
    """Superseded offsets of a segment, one by one."""
    FINDINGS = 4
    """What else was found in a segment, pickled."""


class KeyRow(NamedTuple):
    """What the steps send each other."""

    target: int
    """The task of the next step."""
    segment: int
    """Its number."""
    kind: RowKind
    order: int
    """Of `NEW`: those with a higher one have higher offsets. Of `BITS`: the first offset."""
    digests: bytes | memoryview
    offsets: bytes | memoryview
    """8 bytes each; of `BITS` the bits, of `FINDINGS` the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToRead:
    number: int
    base_offset: int
    next_base_offset: int
    """Of the segment that follows, or the end of what is compacted."""
    size_bytes: int
    new_from: int
    """The position from which on keys may be new; after the segment's end if none is."""
    aborted: tuple[AbortedTransaction, ...]
    """Transactions that may have data in it."""

    def open(self, files: FileSystem, folder: str, config: TopicConfig) -> SegmentSource:
        """Raises `CompactionStopped` if it is not what it was when the compaction was planned."""
        segment = Segment(
            SegmentFiles(files, folder, self.base_offset, read_only=True),
            size_bytes=self.size_bytes,
            created_ms=0,
            options=segment_options(config),
        )
        if segment.file.size != self.size_bytes:
            raise CompactionStopped(
                f"{segment.file.name}: has {segment.file.size} bytes, and had {self.size_bytes} when the job began"
            )
        return SegmentSource(segment, next_base_offset=self.next_base_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShuffle:
    """What all tasks have to know."""

    folder: str
    config: TopicConfig
    first_dirty_offset: int
    memory_bytes: int
    load_factor: float
    piece_bytes: int
    shares: int
    """How many tasks share the digests."""
    mark_tasks: tuple[int, ...]
    """By the number of a segment: which task of the last step writes its marks."""
    staging: str
    """A folder for the marks."""


@dataclass(slots=True)
class SegmentFindings:
    """What was found in a segment, apart from its keys."""

    transactions: Piece | None = None
    """The batches that later segments depend on."""
    broken: str | None = None
    """Why the segment has to stay as it is."""
    disorder: str | None = None
    """Why the log cannot be compacted in this form."""
    error: Exception | None = None
    """Why the segment could not be read."""
    bad_checksums: set[int] | None = field(default_factory=set)
    """As in `SegmentSource`."""
    damage: list[CorruptRecord] = field(default_factory=list)
    new_bytes: int = 0
    new_records: int = 0


@dataclass(slots=True)
class SegmentMarks:
    """What is known of a segment when its keys were shuffled."""

    segment: int
    findings: SegmentFindings = field(default_factory=SegmentFindings)
    path: str | None = None
    """A file with the superseded offsets; None if there are none."""
    kind: RowKind = RowKind.BITS
    """How they are stored: bits from the segment's base offset on, or offsets that rise."""
