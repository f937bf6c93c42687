"""Which copy of a partition consumers were served, and up to where: Kafka's rules as a pure function.

The copy of the leader counts, as far as the cluster metadata is as new as the logs. Otherwise the copy with the latest
leader epoch counts, and of several the longest. Length alone never decides: after an unclean election, the copy of the
old leader may be the longest and has records that Kafka truncates when it comes back.

The epochs of the chosen copy are the history of the log. Another copy agrees with it up to the end of the last epoch
that both have (KIP-101, KIP-279): up to there, both have the same batches. What a copy has after that was truncated, or
would be.

Consumers read below the high watermark. Its checkpoints are up to some seconds old, and those of a copy count only as
far as the copy agrees. Offsets that all replicas of the ISR have are below the high watermark, too, and so are those
that a cleaner has seen: it has removed records for the sake of later ones, so the log makes no sense without these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from duralog.format.checkpoints import EpochStart
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.storage.metadata.cluster_metadata import PartitionRegistration

_NO_LEADER = -1
_NOWHERE = 2**63 - 1
"""Above all offsets."""


class Reason(Enum):
    """Why a copy was chosen."""

    ONLY_COPY = "it is the only copy"
    LEADER = "it is the leader's by the cluster metadata"
    EPOCHS = "it has the latest leader epoch and, of those that have it, the highest end offset"
    LEADER_MISSING = "the leader's copy is missing; it has the latest leader epoch and the highest end offset"
    LEADER_STALE = "the leader's copy is older; it has the latest leader epoch and the highest end offset"
    METADATA_STALE = "the cluster metadata is older; it has the latest leader epoch and the highest end offset"


class WatermarkSource(Enum):
    """Where the high watermark comes from."""

    CHECKPOINT = "replication-offset-checkpoint"
    ISR = "all replicas of the ISR have these offsets"
    NONE = "no high watermark is known: the end of the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """What the files of one copy say."""

    node_id: int | None
    start_offset: int
    end_offset: int
    """After the last batch that can be read without a gap in the file."""
    epochs: tuple[EpochStart, ...]
    """Both fields rise. The last one may start at or after the end: its leader has written nothing, or it is lost."""
    high_watermark: int | None = None
    """By the checkpoint; None if it has no entry."""
    cleaned_to: int | None = None
    """The cleaner's checkpoint: below it, missing offsets may be compacted."""

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1].epoch if self.epochs else NO_LEADER_EPOCH

    @property
    def log_start_offset(self) -> int:
        """Where the log starts. The files may start later: then some are lost.

        When Kafka deletes segments, it lets the first epoch start with what is left.
        """
        return min(self.start_offset, self.epochs[0].start_offset) if self.epochs else self.start_offset


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets that are read from one copy."""

    copy: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Copies are numbered in the order in which they were given."""

    copy: int
    reason: Reason
    epochs: tuple[EpochStart, ...]
    """The history of the log."""
    agreed: tuple[int, ...]
    """For each copy the offset up to which it has the same batches as the log."""
    start_offset: int
    high_watermark: int
    """Consumers were served the offsets below it."""
    watermark_source: WatermarkSource
    end_offset: int
    """The highest offset up to which a copy has the log."""

    def parts(self, copies: Sequence[CopyState], *, to_end: bool = False) -> list[Part]:
        """What to read from which copy: the chosen one and, if it ends too early, those that have the rest.

        Offsets that no copy has are left out.
        """
        end = self.end_offset if to_end else min(self.high_watermark, self.end_offset)
        found: list[Part] = []
        position = self.start_offset
        while position < end:
            able = [
                number
                for number, state in enumerate(copies)
                if state.start_offset <= position < min(self.agreed[number], state.end_offset)
            ]
            if not able:
                later = [
                    state.start_offset
                    for number, state in enumerate(copies)
                    if position < state.start_offset < min(self.agreed[number], end)
                ]
                if not later:
                    break
                position = min(later)
                continue
            best = self.copy if self.copy in able else max(able, key=lambda number: self.agreed[number])
            upto = min(self.agreed[best], end)
            if position < copies[self.copy].start_offset:
                upto = min(upto, copies[self.copy].start_offset)
            found.append(Part(best, position, upto))
            position = upto
        return found


def choose(copies: Sequence[CopyState], registration: PartitionRegistration | None = None) -> Choice:
    """`registration` is what the newest cluster metadata has for the partition. REQUIRES: there is a copy."""
    latest = max(state.last_epoch for state in copies)
    number, reason = _chosen(copies, registration, latest)
    chosen = copies[number]
    diverges = [_NOWHERE if other == number else divergence(state, chosen) for other, state in enumerate(copies)]
    agreed = tuple(min(state.end_offset, limit) for state, limit in zip(copies, diverges, strict=True))
    is_current = registration is not None and registration.leader_epoch >= latest
    watermark, source = _high_watermark(copies, diverges, registration if is_current else None)
    start = chosen.log_start_offset
    end = max(max(agreed), start)
    return Choice(
        copy=number,
        reason=reason,
        epochs=chosen.epochs,
        agreed=agreed,
        start_offset=start,
        high_watermark=end if watermark is None else max(watermark, start),
        watermark_source=source,
        end_offset=end,
    )


def with_later_epochs(
    copies: Sequence[CopyState],
    observed: Sequence[tuple[EpochStart, ...]],
    registration: PartitionRegistration | None = None,
) -> list[CopyState]:
    """The copies with the epochs that their batches have, and their checkpoints not yet.

    Checksums do not cover the epoch of a batch: one that the metadata and the other copies do not know is damage.
    """
    known = {entry.epoch for state in copies for entry in state.epochs}
    seen = Counter(entry.epoch for entries in observed for entry in entries)
    highest = NO_LEADER_EPOCH if registration is None else registration.leader_epoch

    def is_known(epoch: int) -> bool:
        return len(copies) == 1 or epoch <= highest or epoch in known or seen[epoch] > 1

    return [
        replace(state, epochs=entries) if all(is_known(entry.epoch) for entry in entries) else state
        for state, entries in zip(copies, observed, strict=True)
    ]


def divergence(state: CopyState, chosen: CopyState) -> int:
    """The offset from which on a copy has, or had, other batches than the log of the chosen one.

    It may be far above the end of either. The chosen one may have lost its end: a copy that has more of the last epoch
    does not diverge.
    """
    if not chosen.epochs and not state.epochs:
        # Logs from before leader epochs: Kafka compared nothing either.
        return _NOWHERE
    if not chosen.epochs or not state.epochs:
        # As Kafka does without epochs: only what is below the high watermark counts.
        return state.start_offset if state.high_watermark is None else state.high_watermark
    foreign = _NOWHERE
    for entry in reversed(state.epochs):
        place = bisect_right(chosen.epochs, entry.epoch, key=_epoch)
        if place and chosen.epochs[place - 1].epoch == entry.epoch:
            return foreign if place == len(chosen.epochs) else min(foreign, chosen.epochs[place].start_offset)
        foreign = entry.start_offset
    # All epochs of the log are later: it has deleted, or never had, what the copy has.
    return min(foreign, chosen.epochs[0].start_offset)


def epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    """The epoch of an offset; -1 if it is before the first known one."""
    place = bisect_right(epochs, offset, key=_start_offset)
    return epochs[place - 1].epoch if place else NO_LEADER_EPOCH


def _chosen(copies: Sequence[CopyState], registration: PartitionRegistration | None, latest: int) -> tuple[int, Reason]:
    isr = () if registration is None else registration.isr

    def rank(number: int) -> tuple[int, int, bool, int]:
        state = copies[number]
        return state.last_epoch, state.end_offset, state.node_id in isr, -number

    best = max(range(len(copies)), key=rank)
    if registration is None:
        return best, Reason.EPOCHS if len(copies) > 1 else Reason.ONLY_COPY
    if registration.leader_epoch < latest:
        return best, Reason.METADATA_STALE
    if registration.leader == _NO_LEADER:
        return best, Reason.EPOCHS if len(copies) > 1 else Reason.ONLY_COPY
    of_leader = [number for number, state in enumerate(copies) if state.node_id == registration.leader]
    if not of_leader:
        return best, Reason.LEADER_MISSING
    leader = max(of_leader, key=rank)
    if copies[leader].last_epoch < latest:
        return best, Reason.LEADER_STALE
    return leader, Reason.LEADER


def _high_watermark(
    copies: Sequence[CopyState], diverges: Sequence[int], registration: PartitionRegistration | None
) -> tuple[int | None, WatermarkSource]:
    """`registration` is None if the metadata is older than the logs."""
    checkpoint = max(
        (
            min(max(state.high_watermark, state.cleaned_to or 0), limit)
            for state, limit in zip(copies, diverges, strict=True)
            if state.high_watermark is not None
        ),
        default=None,
    )
    if registration is not None and registration.isr:
        ends: dict[int, int] = {}
        for state, limit in zip(copies, diverges, strict=True):
            if state.node_id is not None:
                ends[state.node_id] = max(ends.get(state.node_id, 0), min(state.end_offset, limit))
        if all(node in ends for node in registration.isr):
            everywhere = min(ends[node] for node in registration.isr)
            if checkpoint is None or everywhere > checkpoint:
                return everywhere, WatermarkSource.ISR
    return checkpoint, WatermarkSource.NONE if checkpoint is None else WatermarkSource.CHECKPOINT


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


def _start_offset(entry: EpochStart) -> int:
    return entry.start_offset
