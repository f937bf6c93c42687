"""The progress and results of long work: compactions and checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What a compaction would do, as `duralog compact --explain` prints it, and in numbers."""

    text: str
    """Exactly what the command prints, without colours."""
    is_due: bool
    """Whether a cleaner would compact it now."""
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
    """The progress of a compaction at one moment."""

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
    """A finding or a note of a check."""

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
    """The progress of a check of the directory at one moment."""

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
