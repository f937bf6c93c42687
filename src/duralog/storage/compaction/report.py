"""What a compaction reports: its progress while it runs, and its figures at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from duralog.columnar.compacting import CompactedPiece
from duralog.config.plurals import plural
from duralog.errors import CompactionStopped
from duralog.notebook.notebook_tables import compaction_html
from duralog.storage.compaction.cleanable import DirtyRange

_MB = 1 << 20

__all__ = ["CompactionPhase", "CompactionProgress", "CompactionReport", "CompactionStopped", "ShowCompaction"]


class CompactionPhase(StrEnum):
    MAPPING = "mapping"
    """The first pass: which offset is the last of each key."""
    REWRITING = "rewriting"
    """The second pass: copying the records that survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    phase: CompactionPhase
    round: int
    """Counted from 1."""
    bytes_done: int
    """Bytes of the log that were read in this phase of this round."""
    bytes_total: int
    map_fill: float
    """How much of the map is used, 0 to 1."""
    records_read: int
    """By the second pass, in all rounds."""
    records_kept: int

    # What `duralog.config.progress.Progress` asks for.

    unit = None

    @property
    def step(self) -> tuple[CompactionPhase, int]:
        return self.phase, self.round

    @property
    def label(self) -> str:
        return f"{self.phase}, round {self.round}" if self.round > 1 else self.phase.value

    @property
    def done(self) -> int:
        return self.bytes_done

    @property
    def total(self) -> int:
        return self.bytes_total

    @property
    def detail(self) -> str:
        return f"map {self.map_fill:.1%} full"


ShowCompaction = Callable[[CompactionProgress], None]
"""Called for every piece of the log, in the thread that compacts."""


@dataclass(slots=True)
class Tallies:
    """The figures of a group."""

    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    expired_tombstones: int = 0
    kept_tombstones: int = 0
    keyless: int = 0
    aborted: int = 0
    read_bytes: int = 0
    earliest_horizon_ms: int | None = None
    latest_horizon_ms: int | None = None

    def add(self, compacted: CompactedPiece) -> None:
        self.records_read += compacted.records_read
        self.records_kept += compacted.records_kept
        self.superseded += compacted.superseded
        self.expired_tombstones += compacted.expired_tombstones
        self.kept_tombstones += compacted.kept_tombstones
        self.keyless += compacted.keyless
        if len(horizons := compacted.delete_horizons_ms):
            self.earliest_horizon_ms = _known(min, self.earliest_horizon_ms, int(horizons.min()))
            self.latest_horizon_ms = _known(max, self.latest_horizon_ms, int(horizons.max()))


@dataclass(slots=True, kw_only=True)
class CompactionReport:
    """What a compaction did. The figures are of the log below `end_offset`, in all rounds together."""

    topic: str
    partition: int
    first_dirty_offset: int
    end: int
    """The offset up to which the log could be compacted."""
    end_offset: int
    """The offset up to which it was compacted: the next compaction's first dirty offset."""
    rounds: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    seconds: float = 0.0
    map_seconds: float = 0.0
    rewrite_seconds: float = 0.0
    map_bytes: int = 0
    """Read by the first pass."""
    map_records: int = 0
    """Records with a key that the first pass mapped."""
    map_fill: float = 0.0
    """How full the map was, in the round that filled it most, 0 to 1."""
    read_bytes: int = 0
    """By the second pass."""
    written_bytes: int = 0
    superseded_records: int = 0
    expired_tombstones: int = 0
    kept_tombstones: int = 0
    """Left by the last round."""
    keyless_records: int = 0
    """Dropped because they have no key: a compacted log should have none."""
    aborted_records: int = 0
    """Dropped because their transactions were aborted."""
    earliest_horizon_ms: int | None = None
    """When the first of the tombstones and markers that the last round left may go; None if none has a horizon yet."""
    latest_horizon_ms: int | None = None
    corrupt_batches: list[str] = field(default_factory=list)
    """Damaged batches, which were copied as they are."""
    left_segments: list[str] = field(default_factory=list)
    """Segments that were left as they are, and why."""
    notes: list[str] = field(default_factory=list)
    idle: DirtyRange | None = None
    """If there was nothing to compact: what was found, as values. The first note says the same in words."""

    def _repr_html_(self) -> str:
        return compaction_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures by their names, as JSON takes them."""
        return {name: value for name, value in asdict(self).items() if name != "idle"}

    def begin_round(self) -> None:
        """Reset the figures that describe the last round only."""
        self.records_before -= self.records_after
        self.records_after = 0
        self.kept_tombstones = 0
        self.earliest_horizon_ms = self.latest_horizon_ms = None

    def add(self, group: Tallies) -> None:
        self.records_before += group.records_read
        self.records_after += group.records_kept
        self.read_bytes += group.read_bytes
        self.superseded_records += group.superseded
        self.expired_tombstones += group.expired_tombstones
        self.kept_tombstones += group.kept_tombstones
        self.keyless_records += group.keyless
        self.aborted_records += group.aborted
        self.earliest_horizon_ms = _known(min, self.earliest_horizon_ms, group.earliest_horizon_ms)
        self.latest_horizon_ms = _known(max, self.latest_horizon_ms, group.latest_horizon_ms)


def _known(choose: Callable[[int, int], int], first: int | None, second: int | None) -> int | None:
    return choose(first, second) if first is not None and second is not None else first if second is None else second


def summary(report: CompactionReport) -> str:
    """The report in one line, with the figures that Kafka's cleaner logs."""
    rounds = "" if report.rounds == 1 else f" in {report.rounds} rounds"
    lines = [
        f"{report.topic}-{report.partition}: compacted up to offset {report.end_offset}, from"
        f" {report.first_dirty_offset}{rounds}",
        f"{_size(report.read_bytes)} read in {report.seconds:.1f} s ({_rate(report.read_bytes, report.seconds)})",
        f"{_size(report.map_bytes)} mapped in {_pace(report.map_bytes, report.map_seconds, report.seconds)}, the map"
        f" {report.map_fill:.1%} full",
        f"{_size(report.bytes_before)} rewritten in"
        f" {_pace(report.bytes_before, report.rewrite_seconds, report.seconds)}",
        f"before {_size(report.bytes_before)} and {plural(report.records_before, 'record')}, after"
        f" {_size(report.bytes_after)} and {report.records_after:,}",
        f"{_less(report.bytes_before, report.bytes_after)} smaller,"
        f" {_less(report.records_before, report.records_after)} fewer records",
    ]
    if report.keyless_records:
        lines.append(f"{plural(report.keyless_records, 'record')} without a key removed")
    return "; ".join(lines)


def _pace(size_bytes: int, seconds: float, of_seconds: float) -> str:
    share = seconds / of_seconds if of_seconds else 0.0
    return f"{seconds:.1f} s ({_rate(size_bytes, seconds)}, {share:.1%} of the time)"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MB:,.1f} MB"


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{size_bytes / _MB / seconds:,.1f} MB/s" if seconds else "at once"


def _less(before: int, after: int) -> str:
    return f"{1 - after / before if before else 0.0:.1%}"
