"""One partition: its segments, its marked offsets, its state for the cleaner, and its size over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSample:
    """One partition at one moment."""

    at_ms: int
    size_bytes: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    base_offset: int
    next_offset: int
    """One above its last offset. Up to the next segment's base there may be a gap, as compaction leaves it."""
    size_bytes: int
    """Of the `.log` file's contents."""
    is_active: bool
    is_clean: bool
    """It lies below the cleaner's checkpoint, whole."""
    first_timestamp_ms: int | None
    """The largest timestamp of its first batch; None without a batch or a timestamp."""
    largest_timestamp_ms: int | None
    """Of any record; the time of the file where records have none."""
    files: tuple[tuple[str, int], ...]
    """Name and size of each of its files, the log first."""
    index_entries: int | None
    """Of the offset index; None if there is no such file."""
    time_index_entries: int | None
    index_density_bytes: float | None
    """Log bytes for each entry of the offset index; None without an entry."""
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentScan:
    """What reading a whole segment finds."""

    base_offset: int
    batches: int
    records: int
    control_batches: int
    transactional_batches: int
    codecs: Mapping[str, float]
    """Each codec's share of the bytes, 0 to 1, the largest first."""
    formats: Mapping[int, int]
    """Batches of each format version (magic 0, 1, 2)."""
    stored_bytes: int
    unpacked_bytes: int | None
    """What the batches would have without compression; None if one cannot be unpacked."""
    compression_ratio: float | None
    """Unpacked over stored bytes."""
    tombstones: int | None
    """Records with a key and no value; None if a batch cannot be unpacked."""
    keyless: int | None
    first_offset: int | None
    last_offset: int | None
    trouble: str | None = None
    """Of damage; the figures are then of what is before it, or without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransactionFacts:
    producer_id: int
    producer_epoch: int
    first_offset: int


class CleanerState(Enum):
    """Whether logs of the directory are compacted without being asked."""

    ON = "on"
    OFF = "off"
    """`log.cleaner.enable` of the broker is false."""
    ABSENT = "absent"
    """No process has the directory open."""
    UNKNOWN = "unknown"
    """A process has it open; its `log.cleaner.enable` is not in the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    high_watermark: int
    """A single node's is the end of the log."""
    last_stable_offset: int
    """From here on, it is not decided yet which records of transactions count."""
    policy: str
    size_bytes: int | None
    segments: tuple[SegmentFacts, ...]
    """Oldest first. Empty for a broker without a directory: a note says so."""
    first_timestamp_ms: int | None
    latest_timestamp_ms: int | None
    configs: Mapping[str, str]
    """Those in force that are not Kafka's defaults, by Kafka's names."""
    history: tuple[SizeSample, ...]
    checkpoint: int | None = None
    """Up to where the cleaner's checkpoint says it was compacted."""
    first_dirty_offset: int | None = None
    """Below it, the log is clean. None, like the next ones, for a log that is not compacted, or without files."""
    first_uncleanable_offset: int | None = None
    why_uncleanable: str | None = None
    cleanable_from_ms: int | None = None
    """When more may be compacted, if only the age of records keeps it."""
    dirty_ratio: float | None = None
    min_dirty_ratio: float | None = None
    why_not_compacted: str | None = None
    """Why a cleaner would not take it up now; None if it would."""
    cleaner: CleanerState = CleanerState.UNKNOWN
    open_transactions: tuple[OpenTransactionFacts, ...] = ()
    folder: str | None = None
    trouble: str | None = None
    notes: tuple[str, ...] = ()
