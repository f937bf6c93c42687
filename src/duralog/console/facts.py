"""What the pages show: values that nobody changes any more, whatever they were read from.

Numbers are plain and exact; words for people are made by the pages. What a source cannot know is None, never 0: a
broker tells no segments, a directory does not tell whether a group's members are alive. Names, keys, values and header
names come from a disk or a network: they are untrusted, and whoever shows them escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from duralog.cli.group_views import GroupView

RECENT_LOOKS = 40
NO_TIMESTAMP_MS = -1
"""A record's timestamp where its batch has none."""


class SourceKind(StrEnum):
    DIRECTORY = "directory"
    BROKER = "broker"
    BOTH = "both"
    """Topics, segments and records from the directory, groups from the broker that serves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The whole source at one moment, for the charts of the overview."""

    at_ms: int
    size_bytes: int | None
    records_in_per_second: float | None
    """Since the sample before; None in the first one."""
    bytes_in_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSample:
    """One partition at one moment."""

    at_ms: int
    size_bytes: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    name: str
    partitions: int
    """That are in this directory, or that the broker tells of."""
    size_bytes: int | None
    """Of the log files; None where a broker does not tell."""
    records: int | None
    """End offsets less start offsets: a compacted log has fewer."""
    policy: str
    """`cleanup.policy` as Kafka writes it: `delete`, `compact`, `compact,delete`; empty if unknown."""
    is_internal: bool
    bytes_in_per_second: float | None
    """Growth of the log between the last two looks that saw it; what a compaction or retention took away counts 0."""
    records_in_per_second: float | None
    latest_timestamp_ms: int | None
    """The largest timestamp of a record, as far as it is known without reading logs."""
    trouble: str | None
    """A sentence about the first of its partitions that cannot be read."""
    recent: tuple[float | None, ...] = ()
    """Records in per second at the last looks, oldest first, `RECENT_LOOKS` at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    name: str
    state: str | None
    """`Stable`, `Empty`, ...; None from a directory, since only a running broker knows."""
    protocol: str
    """`classic` or `consumer`."""
    members: int
    lag: int | None
    """Records not yet consumed, over all partitions with a committed offset; None if none has one."""
    topics: tuple[str, ...]
    """That it committed offsets for or has members on, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    at_ms: int
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    facts: GroupFacts
    view: GroupView
    """Its members, and each partition's committed offset, end offset and lag, as `duralog group` shows them."""
    history: tuple[LagSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    taken_ms: int
    """When the snapshot was taken; 0 if none was yet."""
    target: str
    """What the console was pointed at, to be shown: a path, an address, or both."""
    kind: SourceKind
    cluster_id: str | None
    node_id: int | None
    held_by: str | None
    """Who has the directory locked (`process 1234 (duralog)`); None if nobody has, or there is no directory."""
    topics: tuple[TopicFacts, ...]
    """By name."""
    groups: tuple[GroupFacts, ...]
    """By name."""
    partitions: int
    size_bytes: int | None
    records: int | None
    bytes_in_per_second: float | None
    records_in_per_second: float | None
    history: tuple[Sample, ...]
    """Oldest first, bounded."""
    notes: tuple[str, ...]
    """Sentences about what cannot be shown or read at the moment, and why."""
    is_online: bool = True
    """Whether the last look at the source succeeded. If not, the rest is as it was last seen, and a note says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    topic: str
    partition: int
    size_bytes: int | None
    segments: int | None
    start_offset: int | None
    """None, like the other numbers, if the partition cannot be read: `trouble` says why."""
    end_offset: int | None
    dirty_ratio: float | None
    """Of a compacted log, as Kafka counts it, from sizes and the cleaner's checkpoint; `partition` is exact."""
    latest_timestamp_ms: int | None
    trouble: str | None
    records_in_per_second: float | None = None
    bytes_in_per_second: float | None = None
    leader: int | None = None
    """A broker's node id of the leader."""

    @property
    def records(self) -> int | None:
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


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
    """What reading a whole segment tells."""

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
    last_append_ms: int


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
    open_transactions: tuple[OpenTransactionFacts, ...] = ()
    folder: str | None = None
    trouble: str | None = None
    notes: tuple[str, ...] = ()


class RecordKind(StrEnum):
    DATA = "data"
    ABORTED = "aborted"
    """Of a transaction that was aborted: a `read_committed` consumer never sees it."""
    OPEN = "open"
    """Of a transaction that is not decided yet."""
    MARKER = "marker"
    """Written by the log itself where a transaction ended; `marker` says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    offset: int
    timestamp_ms: int
    """`NO_TIMESTAMP_MS` if it has none."""
    timestamp_type: str
    """`CreateTime`, `LogAppendTime` or `NoTimestampType`."""
    key: bytes | None
    """Cut to `SHOWN_BYTES`, as is the value: `key_bytes` and `value_bytes` tell their sizes."""
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The first ones, cut as well: `header_count` tells how many there are."""
    key_bytes: int
    value_bytes: int
    header_count: int
    size_bytes: int
    """Of key, value and headers together."""
    is_tombstone: bool
    codec: str | None
    """Of its batch; None through a broker."""
    kind: RecordKind = RecordKind.DATA
    marker: str | None = None
    """`commit of producer 4, epoch 1`."""
    producer_id: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether `Source.record` has more of it."""
        is_short = len(self.key or b"") < self.key_bytes or len(self.value or b"") < self.value_bytes
        is_short = is_short or len(self.headers) < self.header_count
        return is_short or any(len(value or b"") == SHOWN_BYTES for _, value in self.headers)


SHOWN_BYTES = 16 << 10
"""So much of a key, a value and a header's value is in a page; `Source.record` gives more."""
SHOWN_HEADERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    records: tuple[ShownRecord, ...]
    """By offset, also on a page that was read backwards."""
    first_offset: int
    """The page answers for the offsets from here up to, not including, `next_offset`: gaps in it are real gaps."""
    next_offset: int
    """Ask for this offset to go on."""
    previous_offset: int | None
    """Ask for this one with `backwards` to go back; None at the start of the log."""
    start_offset: int
    """Of the log, as are the end and the last stable offset."""
    end_offset: int
    last_stable_offset: int | None
    note: str | None = None
    """Why the page is shorter, or starts elsewhere, than was asked for; damage that was met."""

    @property
    def is_at_end(self) -> bool:
        return self.next_offset >= self.end_offset


class RunState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    state: RunState
    offset: int
    """Up to here it has looked."""
    end_offset: int
    records_read: int
    bytes_read: int
    share: float
    """0 to 1."""
    found: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a compaction would do, as `duralog compact --explain` tells it, and in numbers."""

    text: str
    """Exactly what the command prints, without colours."""
    is_due: bool
    """Whether a cleaner would take it up by itself."""
    size_bytes: int
    clean_bytes: int
    cleanable_bytes: int
    would_run: bool
    """Whether there is anything to compact. If not, the numbers below are 0."""
    records_before: int = 0
    """Of the part that would be compacted, in its first round."""
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    superseded_records: int = 0
    expired_tombstones: int = 0
    keyless_records: int = 0
    aborted_records: int = 0
    spent_markers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionView:
    """How a compaction goes, at one moment."""

    topic: str
    partition: int
    state: RunState
    started_ms: int
    seconds: float
    phase: str
    """`opening`, `mapping`, `rewriting`, `closing`, and `done` at the end."""
    round: int
    share: float
    """Of the phase, 0 to 1."""
    bytes_done: int
    bytes_total: int
    map_fill: float
    records_read: int
    records_kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    size_before: int
    size_after: int
    segments_before: int
    segments_after: int
    records_before: int
    """Of the part that was compacted."""
    records_after: int
    superseded_records: int
    expired_tombstones: int
    aborted_records: int
    keyless_records: int
    rounds: int
    """0 if there was nothing to do: `notes` say why."""
    seconds: float
    notes: tuple[str, ...]
    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts:
    """Something wrong that a check found, or a note that is good to know."""

    file: str
    """Relative to the directory."""
    position: int | None
    text: str
    """A sentence, with what was expected and found."""
    is_error: bool
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyView:
    """How a check of the directory goes, at one moment."""

    state: RunState
    started_ms: int
    seconds: float
    bytes_done: int
    bytes_total: int
    share: float
    current: str | None
    """The folder that is being read."""
    partitions_done: int
    partitions_total: int
    batches: int
    records: int
    errors: int
    """All of them; `findings` has the first ones."""
    findings: tuple[FindingFacts, ...]
    error: str | None = None
    """Why the check itself failed."""
    topic: str | None = None
    """What was asked for; None for the whole directory."""
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """Bytes that a recovery or a repair took out of a log and kept."""

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
    """The dirtiest first, bounded; `partitions` tells how many there are."""
    partitions: int
    due: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the broker's /metrics tell of its cleaner, by name; empty without an address."""
    notes: tuple[str, ...] = ()
