"""Problems and information, the most severe first. Healthy internal topics are not listed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from duralog.config.times import duration_text
from duralog.console.drawing.words import (
    UNKNOWN,
    bytes_text,
    counted,
    group_path,
    number_text,
    partition_path,
    share_text,
)
from duralog.console.facts.health import CleanerFacts, CleanerRow, HealthItem, Severity
from duralog.console.facts.overview import GroupDetails, LagSample, Overview, PartitionRow
from duralog.console.facts.runs import VerifyView

MOST_ITEMS = 500
_STALE_MS = 15_000
_TREND_MS = 60_000
"""A lag that has only grown for this long is a warning."""
_LEAST_SAMPLES = 5
_INTERNAL = "__"
_EMPTY = "empty"


def _number(value: float) -> str:
    return number_text(round(value))


def _bytes(value: float) -> str:
    return bytes_text(round(value))


_CLEANER_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "cleanings": ("Compactions", _number),
    "failed_cleanings": ("Failed compactions", _number),
    "cleaner_dirty_percent": ("Dirtiest log", lambda value: share_text(value / 100)),
    "cleaner_backlog_bytes": ("To compact", _bytes),
    "cleaner_seconds": ("Longest of the last compactions", lambda value: duration_text(round(value * 1000))),
    "uncleanable_partitions": ("Uncleanable partitions", _number),
    "uncleanable_bytes": ("To compact in those", _bytes),
}
"""Metrics of the broker: their labels on the page, and their format."""


def health_items(
    overview: Overview,
    troubled: Iterable[PartitionRow],
    groups: Iterable[GroupDetails],
    cleaner: CleanerFacts,
    check: VerifyView | None,
    *,
    quarantined: int,
    now_ms: int,
) -> list[HealthItem]:
    """`troubled` are the partitions that cannot be read; `quarantined` is the number of entries in quarantine."""
    items = [
        *_of_source(overview, now_ms),
        *_of_partitions(troubled),
        *_of_check(check),
        *_of_quarantine(quarantined),
        *(item for group in groups for item in _of_group(group)),
        *_of_cleaner(cleaner),
    ]
    return sorted(items, key=lambda item: item.severity)[:MOST_ITEMS]


def verdict(items: Sequence[HealthItem]) -> tuple[str, str]:
    """The tone of the dot, and a sentence."""
    critical = sum(item.severity is Severity.CRITICAL for item in items)
    warnings = sum(item.severity is Severity.WARNING for item in items)
    parts = [f"{number_text(critical)} critical"] if critical else []
    parts += [counted(warnings, "warning")] if warnings else []
    if not parts:
        return "good", "No problems found."
    return "bad" if critical else "warn", f"{', '.join(parts)}."


def shown_cleaner_rows(rows: Sequence[CleanerRow]) -> list[CleanerRow]:
    """Without the partitions of internal topics that are not due."""
    return [row for row in rows if row.is_due or not row.topic.startswith(_INTERNAL)]


def cleaner_figures(metrics: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Name in /metrics, label and text. A figure that is not known here keeps its name."""
    shown = []
    for name, value in metrics.items():
        label, written = _CLEANER_FIGURES.get(name, (name, "{:,g}".format))
        shown.append((name, label, written(value) if math.isfinite(value) else UNKNOWN))
    return shown


def _of_source(overview: Overview, now_ms: int) -> Iterator[HealthItem]:
    about = "the broker" if overview.held_by is None and overview.kind != "directory" else "the directory"
    if not overview.is_online:
        notes = overview.notes or ("The last refresh failed.",)
        yield HealthItem(Severity.CRITICAL, about, notes[0])
        yield from (HealthItem(Severity.INFO, about, note) for note in notes[1:])
        return
    if overview.taken_ms and now_ms - overview.taken_ms > _STALE_MS:
        yield HealthItem(Severity.WARNING, "the console", "Nothing was refreshed for 15 seconds: the machine is busy.")
    yield from (HealthItem(Severity.INFO, about, note) for note in overview.notes)


def _of_partitions(troubled: Iterable[PartitionRow]) -> Iterator[HealthItem]:
    for row in troubled:
        if row.trouble is not None:
            path = partition_path(row.topic, row.partition)
            yield HealthItem(Severity.CRITICAL, f"{row.topic}-{row.partition}", row.trouble, path)


def _of_check(check: VerifyView | None) -> Iterator[HealthItem]:
    if check is None:
        return
    if check.error is not None:
        yield HealthItem(Severity.WARNING, "the check", f"The last check failed: {check.error}")
    if check.errors:
        found = f"The last check found {counted(check.errors, 'error')}: see below."
        yield HealthItem(Severity.CRITICAL, "the check", found)


def _of_quarantine(quarantined: int) -> Iterator[HealthItem]:
    if quarantined:
        sentence = f"{counted(quarantined, 'range')} of bytes taken out of logs, and kept: see below."
        yield HealthItem(Severity.WARNING, "the quarantine", sentence)


def _of_group(group: GroupDetails) -> Iterator[HealthItem]:
    facts = group.facts
    about, path = f"group {facts.name}", group_path(facts.name)
    grown = growth_of_lag(group.history)
    if grown:
        yield HealthItem(Severity.WARNING, about, f"Its lag has only grown, by {number_text(grown)} in a minute.", path)
    elif facts.lag and facts.state is not None and facts.state.lower() == _EMPTY:
        yield HealthItem(Severity.WARNING, about, f"A lag of {number_text(facts.lag)}, and no consumer runs.", path)
    if facts.without_commit:
        where = counted(facts.without_commit, "partition")
        yield HealthItem(Severity.INFO, about, f"{where} with records and without a committed offset.", path)


def growth_of_lag(history: Sequence[LagSample]) -> int:
    """By how much a lag has grown in the last minute, if it never fell; otherwise 0."""
    if not history:
        return 0
    recent = [sample for sample in history if sample.at_ms >= history[-1].at_ms - _TREND_MS]
    is_long = len(recent) >= _LEAST_SAMPLES and len(recent) < len(history)
    never_fell = all(before.lag <= after.lag for before, after in pairwise(recent))
    return recent[-1].lag - recent[0].lag if is_long and never_fell else 0


def _of_cleaner(cleaner: CleanerFacts) -> Iterator[HealthItem]:
    due = [row for row in cleaner.rows if row.is_due]
    if due:
        sentence = f"{counted(cleaner.due, 'partition')} due for compaction, {due[0].topic}-{due[0].partition} first."
        yield HealthItem(Severity.INFO, "the cleaner", sentence)
