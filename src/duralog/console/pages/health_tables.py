"""The tables of the health page: the findings of a check, the quarantine, and the cleaner's partitions."""

from __future__ import annotations

from collections.abc import Callable

from duralog.console.drawing.words import (
    bytes_text,
    compaction_path,
    grouped,
    number_text,
    partition_path,
    share_text,
)
from duralog.console.facts.health import CleanerRow, HealthItem, QuarantineEntry, Severity
from duralog.console.facts.runs import FindingFacts
from duralog.console.ui.data_table import (
    Cell,
    Column,
    DataTable,
    TableRows,
    age_column,
    number_column,
    partition_column,
)

_SEVERITY_TONES = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.INFO: "quiet"}


def items_table() -> DataTable[HealthItem]:
    return DataTable(
        "health-items",
        "Problems",
        (
            Column(
                name="severity",
                label="Severity",
                cell=lambda item: {"text": item.severity.name.lower(), "tone": _SEVERITY_TONES[item.severity]},
                sort=lambda item: item.severity,
            ),
            Column(
                name="about",
                label="What",
                cell=lambda item: {"text": item.about, **({} if item.path is None else {"href": item.path})},
                sort=lambda item: item.about,
            ),
            Column(name="sentence", label="Why", cell=lambda item: item.sentence),
        ),
        TableRows(
            key=lambda item: f"{item.about}: {item.sentence}",
            search=lambda item: f"{item.severity.name} {item.about} {item.sentence}",
            search_from=10,
            sort="severity",
            on_a_page=20,
        ),
        empty="No problems.",
    )


def findings_table(place_of: Callable[[FindingFacts], Cell]) -> DataTable[FindingFacts]:
    def where(finding: FindingFacts) -> Cell:
        place = place_of(finding)
        at = "" if finding.position is None else f"position {number_text(finding.position)}: "
        return {**(place if isinstance(place, dict) else {"text": place}), "narrow": f"{at}{finding.text}"}

    return DataTable(
        "findings",
        "Findings",
        (
            Column(
                name="kind",
                label="Kind",
                cell=_kind_of,
                sort=lambda finding: not finding.is_error,
            ),
            Column(name="where", label="File", cell=where, sort=lambda finding: (finding.file, finding.position or 0)),
            number_column("position", "Position", lambda finding: finding.position, wide=True),
            Column(name="text", label="What was found", cell=lambda finding: finding.text, wide=True),
        ),
        TableRows(
            key=lambda finding: f"{finding.file}:{finding.position}:{finding.text}",
            search=lambda finding: f"{finding.file} {finding.text}",
            search_from=10,
            sort="kind",
        ),
    )


def _kind_of(finding: FindingFacts) -> Cell:
    return {"text": "error", "tone": "bad"} if finding.is_error else {"text": "note", "tone": "quiet"}


def quarantine_table() -> DataTable[QuarantineEntry]:
    return DataTable(
        "quarantine",
        "Quarantine",
        (
            Column(
                name="where",
                label="Partition",
                cell=lambda entry: {
                    "text": f"{entry.topic}-{entry.partition}",
                    "href": partition_path(entry.topic, entry.partition),
                    "narrow": f"{entry.reason}: {entry.path}",
                },
                sort=lambda entry: (entry.topic, entry.partition),
            ),
            Column(
                name="bytes",
                label="Bytes",
                cell=lambda entry: {
                    "text": bytes_text(entry.end - entry.start),
                    "title": f"positions {entry.start} to {entry.end} of {entry.file}",
                },
                sort=lambda entry: entry.end - entry.start,
                numeric=True,
            ),
            age_column("time", "When", lambda entry: entry.time_ms),
            Column(name="reason", label="Why", cell=lambda entry: {"text": entry.reason, "sub": entry.path}, wide=True),
        ),
        TableRows(
            key=lambda entry: entry.path,
            search=lambda entry: f"{entry.topic}-{entry.partition} {entry.reason} {entry.path}",
            search_from=10,
            sort="time",
            descending=True,
        ),
    )


def cleaner_table() -> DataTable[CleanerRow]:
    return DataTable(
        "cleaner",
        "Compacted partitions",
        (
            partition_column("partition", lambda row: (row.topic, row.partition), compaction_path),
            Column(
                name="due",
                label="Due",
                cell=lambda row: {"text": "due", "tone": "warn"} if row.is_due else {"text": "no", "tone": "quiet"},
                sort=lambda row: not row.is_due,
            ),
            Column(
                name="dirty",
                label="Dirty",
                cell=lambda row: {
                    "text": share_text(row.dirty_ratio),
                    "bar": min(max(row.dirty_ratio, 0.0), 1.0),
                    "title": f"taken up above {share_text(row.min_dirty_ratio)}",
                },
                sort=lambda row: row.dirty_ratio,
                numeric=True,
            ),
            Column(
                name="bytes",
                label="To compact",
                cell=lambda row: bytes_text(row.cleanable_bytes),
                sort=lambda row: row.cleanable_bytes,
                numeric=True,
            ),
            number_column(
                "checkpoint",
                "Clean up to",
                lambda row: row.checkpoint,
                hint="The cleaner's checkpoint: an offset",
                wide=True,
            ),
            Column(name="reason", label="Why", cell=lambda row: grouped(row.reason), wide=True),
        ),
        TableRows(
            key=lambda row: f"{row.topic}-{row.partition}",
            search=lambda row: f"{row.topic}-{row.partition}",
            search_from=10,
            sort="dirty",
            descending=True,
            on_a_page=20,
        ),
        empty="No partition is compacted.",
    )
