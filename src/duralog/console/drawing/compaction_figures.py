"""The figures of the compaction page: the clean, new and too new parts of a log, and the result of a run."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.console.drawing.partition_blocks import Zone
from duralog.console.drawing.partition_figures import Figure
from duralog.console.drawing.words import bytes_text, counted, grouped, number_text, share_text
from duralog.console.facts.partitions import CleanerState, PartitionFacts
from duralog.console.facts.runs import CompactionResult, CompactionView, Rehearsal, RunState

_WHO_COMPACTS = {
    CleanerState.ON: "The cleaner compacts it at its next check.",
    CleanerState.OFF: "The broker's log.cleaner.enable is false: stop it and run duralog compact.",
    CleanerState.ABSENT: "No process has the directory open: duralog compact does it, or the next broker.",
    CleanerState.UNKNOWN: "The cleaner compacts it at its next check, unless the broker's log.cleaner.enable is false.",
}
"""Of a log that is due."""


@dataclass(frozen=True, slots=True)
class BarPart:
    kind: str
    """A class of the stylesheet."""
    size: int
    words: str


def zone_bar(facts: PartitionFacts) -> list[BarPart]:
    """The bytes of the log by their state for the cleaner; empty parts are left out."""
    sizes = dict.fromkeys((Zone.CLEAN, Zone.DIRTY, Zone.WAITING), 0)
    dirty = facts.first_dirty_offset
    if dirty is None:
        return []
    limit = facts.end_offset if facts.first_uncleanable_offset is None else facts.first_uncleanable_offset
    for segment in facts.segments:
        # The active segment is never compacted, even below the checkpoint.
        if segment.base_offset < dirty:
            zone = Zone.CLEAN
        elif segment.base_offset < limit and not segment.is_active:
            zone = Zone.DIRTY
        else:
            zone = Zone.WAITING
        sizes[zone] += segment.size_bytes
    words = {Zone.CLEAN: "compacted", Zone.DIRTY: "new, can be compacted", Zone.WAITING: "too new"}
    return [BarPart(zone, size, f"{words[zone]}: {bytes_text(size)}") for zone, size in sizes.items() if size]


def rehearsal_bars(rehearsal: Rehearsal) -> list[tuple[str, list[BarPart]]]:
    """The parts that would stay and that would be removed: of the log's bytes, and of the records that would be
    read.
    """
    if not rehearsal.would_run:
        return []
    freed = max(rehearsal.bytes_before - rehearsal.bytes_after, 0)
    untouched = max(rehearsal.size_bytes - rehearsal.bytes_before, 0)
    in_bytes = [
        BarPart("clean", rehearsal.bytes_after, f"kept: {bytes_text(rehearsal.bytes_after)}"),
        BarPart("went", freed, f"removable: {bytes_text(freed)}"),
        BarPart("waiting", untouched, f"not touched: {bytes_text(untouched)}"),
    ]
    in_records = [
        BarPart("clean", rehearsal.records_after, f"{counted(rehearsal.records_after, 'record')} would stay"),
        BarPart("went", rehearsal.superseded_records, f"{number_text(rehearsal.superseded_records)} superseded"),
        BarPart("went-2", rehearsal.expired_tombstones, f"{number_text(rehearsal.expired_tombstones)} old tombstones"),
        BarPart("went-3", rehearsal.keyless_records, f"{number_text(rehearsal.keyless_records)} without a key"),
        BarPart("went-4", rehearsal.aborted_records, f"{number_text(rehearsal.aborted_records)} aborted"),
    ]
    named = (("The log after it", in_bytes), ("Records that it reads", in_records))
    return [(name, [part for part in parts if part.size]) for name, parts in named]


def result_bars(result: CompactionResult) -> tuple[list[BarPart], list[BarPart]]:
    """The log before and after, with the removed part."""
    gone = max(result.size_before - result.size_after, 0)
    before = [BarPart("before", result.size_before, bytes_text(result.size_before))]
    after = [BarPart("clean", result.size_after, bytes_text(result.size_after))]
    if gone:
        after.append(BarPart("went", gone, f"removed: {bytes_text(gone)}, {share_text(gone / result.size_before)}"))
    return before, after


def result_figures(result: CompactionResult) -> list[Figure]:
    reasons = (
        (result.superseded_records, "superseded"),
        (result.expired_tombstones, "expired tombstones"),
        (result.aborted_records, "aborted"),
        (result.keyless_records, "without a key"),
    )
    gone = result.records_before - result.records_after
    why = ", ".join(f"{number_text(count)} {words}" for count, words in reasons if count)
    return [
        Figure("result-size", "Size", f"{bytes_text(result.size_before)} → {bytes_text(result.size_after)}"),
        Figure(
            "result-records",
            "Records",
            f"{number_text(result.records_before)} → {number_text(result.records_after)}",
            f"{number_text(gone)} gone: {why}" if why else f"{number_text(gone)} gone",
        ),
        Figure(
            "result-segments",
            "Segments",
            f"{number_text(result.segments_before)} → {number_text(result.segments_after)}",
        ),
        Figure("result-time", "Time", f"{result.seconds:.2f} s", counted(result.rounds, "round")),
    ]


def progress_words(view: CompactionView) -> str:
    """`rewriting, round 2: 12 MiB of 40 MiB, kept 120 of 400 records`."""
    if view.state is RunState.DONE:
        return f"Done in {view.seconds:.1f} s."
    rounds = f", round {view.round}" if view.round > 1 else ""
    far = f": {bytes_text(view.bytes_done)} of {bytes_text(view.bytes_total)}" if view.bytes_total else ""
    kept = (
        f", kept {number_text(view.records_kept)} of {counted(view.records_read, 'record')}"
        if view.records_read
        else ""
    )
    return f"{view.phase.capitalize()}{rounds}{far}{kept}"


def overall_share(view: CompactionView) -> float:
    """Mapping is the first half of the way, rewriting the second."""
    halves = {"opening": (0.0, 0.02), "mapping": (0.02, 0.4), "rewriting": (0.4, 0.97), "closing": (0.97, 1.0)}
    low, high = halves.get(view.phase, (1.0, 1.0))
    return low + (high - low) * min(max(view.share, 0.0), 1.0)


def cleaner_figures(facts: PartitionFacts) -> list[Figure]:
    """The cleaner's figures for this log."""
    is_due = facts.why_not_compacted is None
    checkpoint = "never" if facts.checkpoint is None else number_text(facts.checkpoint)
    limit = "" if facts.min_dirty_ratio is None else f"starts above {share_text(facts.min_dirty_ratio)}"
    return [
        Figure(
            "cleaner-due",
            "Cleaner",
            "due" if is_due else "waits",
            facts.why_not_compacted or _WHO_COMPACTS[facts.cleaner],
        ),
        Figure("cleaner-ratio", "Dirty", share_text(facts.dirty_ratio), limit),
        Figure("cleaner-checkpoint", "Compacted up to", checkpoint, "the cleaner's checkpoint"),
        Figure(
            "cleaner-limit",
            "First uncleanable",
            number_text(facts.first_uncleanable_offset),
            grouped(facts.why_uncleanable or ""),
        ),
    ]
