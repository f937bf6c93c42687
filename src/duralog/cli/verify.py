"""`duralog verify`: whether a log directory is what it should be. `storage.verification` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from duralog.cli.common.failures import FAILURE, printable, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    Data,
    Directory,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoice,
    local_directory_given,
    parsed,
    standard_output,
)
from duralog.cli.common.tables import Table, plural, size_text
from duralog.cli.common.unknown_names import names_checked
from duralog.config.byte_sizes import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from duralog.cli.common.output import Output
    from duralog.errors import CorruptRecord
    from duralog.storage.checks.findings import Note
    from duralog.storage.checks.partition import PartitionReport
    from duralog.storage.checks.verification import Totals, Verification

COLUMNS = {
    "partition": -32,
    "segments": 8,
    "batches": 10,
    "records": 12,
    "bytes": 16,
    "first_offset": 12,
    "end_offset": 12,
    "findings": 8,
}
_LEAST = ("first_offset", "segments", "batches")
_SHORT_NAME = 24
_SMALLEST_BATCH_BYTES = 61
_SMALLEST_RECORD_BYTES = 7
_ALIKE = 3
"""So many notes that say the same of different files are listed, no more."""


def verify(
    directory: Directory = None,
    data: Data = None,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also unpack every batch and decode every record.", rich_help_panel=HOW)
    ] = False,
    index_interval: Annotated[
        str | None,
        typer.Option(
            "--index-interval",
            metavar="SIZE",
            help="The topics' index.interval.bytes; indexes must then match exactly.",
            rich_help_panel=HOW,
        ),
    ] = None,
    threads: Annotated[
        int,
        typer.Option("--threads", metavar="N", min=1, max=64, help="Read with so many threads.", rich_help_panel=HOW),
    ] = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Check every file of a directory; nothing is changed.

    Checksums, offsets, all indexes against their logs, producer snapshots, leader epochs, checkpoints, metadata. DIR
    may also be one partition's folder.

    Exit code: 0 all is well, 1 there are findings or something cannot be read, 2 wrong usage, 130 interrupted.
    """
    path = local_directory_given(directory, data)
    interval = None if index_interval is None else parsed("--index-interval", parse_bytes, index_interval)
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.common.compilation import announce_compilation
        from duralog.cli.common.progress import Progress

        announce_compilation(quiet=quiet)
        from duralog.storage.checks.verification import Verification

        output = standard_output(as_json=as_json, quiet=quiet)
        verification = Verification(
            path,
            topics=None if topic is None else [topic],
            partition=partition,
            threads=threads,
            interval_bytes=interval,
            decode=deep,
        )
        try:
            with Progress(verification.size_bytes, wanted=not (no_progress or quiet)) as progress:
                output.before_writing = progress.hide
                _run(verification, output, progress)
        finally:
            output.flush()
        if verification.totals.errors:
            raise typer.Exit(FAILURE)


def _run(verification: Verification, output: Output, progress: Any) -> None:
    read = 0

    def show(done: int, name: str) -> None:
        nonlocal read
        progress.begin(name)
        progress.advance(done - read)
        read = done

    write_verification(output, verification, verification.run(show), size_bytes=verification.size_bytes)


class Verified(Protocol):
    """What there is to tell of a directory beside its partitions."""

    @property
    def path(self) -> str: ...
    @property
    def totals(self) -> Totals: ...
    @property
    def errors(self) -> Sequence[CorruptRecord]: ...
    @property
    def notes(self) -> Sequence[Note]: ...


def write_verification(
    output: Output, verified: Verified, partitions: Iterable[PartitionReport], *, size_bytes: int
) -> None:
    """A line or an object for each partition as it comes, then the findings. `verified` is looked at after them all.

    `size_bytes` of all logs, which is known before, tells how wide numbers get.
    """
    table = Table(output, COLUMNS if output.width is None else _tight_columns(size_bytes), least=_LEAST)
    table.begin()
    reports: list[PartitionReport] = []
    for report in partitions:
        if output.as_json:
            output.object(report.to_dict())
            _write_findings(output, report.errors, report.notes)
        elif not output.quiet:
            table.row(_cells(report))
        reports.append(report)
    table.end()
    if output.as_json:
        _write_findings(output, verified.errors, verified.notes)
        output.object({"kind": "summary", "path": verified.path, **verified.totals.to_dict()})
        return
    errors = [error for report in reports for error in report.errors]
    notes = [note for report in reports for note in report.notes]
    if not output.quiet and (errors or notes or verified.errors or verified.notes):
        output.line("")
    _write_findings(output, [*errors, *verified.errors], _without_repetition([*notes, *verified.notes]))
    output.heading(_summary_line(verified))


def _tight_columns(size_bytes: int) -> dict[str, int]:
    """As wide as numbers can get in logs of that size."""
    most = {
        "partition": -_SHORT_NAME,
        "batches": len(f"{size_bytes // _SMALLEST_BATCH_BYTES:,}"),
        "records": len(f"{size_bytes // _SMALLEST_RECORD_BYTES:,}"),
        "bytes": len(f"{size_bytes:,}"),
    }
    return {name: most.get(name, width) for name, width in COLUMNS.items()}


def _cells(report: PartitionReport) -> list[str]:
    counts = report.counts
    return [
        printable(report.name),
        f"{counts.segments:,}",
        f"{counts.batches:,}",
        f"{counts.records:,}" if counts.records or not counts.wrappers else "-",
        f"{counts.size_bytes:,}",
        str(report.base_offset),
        str(report.end_offset),
        f"{report.error_count:,}" if report.error_count else "-",
    ]


def _write_findings(output: Output, errors: Sequence[CorruptRecord], notes: Sequence[Note]) -> None:
    for error in errors:
        output.finding(error)
    for note in notes:
        output.note(note.file, note.text, **note.fields)


def _without_repetition(notes: Sequence[Note]) -> list[Note]:
    """The notes for a person: of those that say the same, the first ones, and how many more there are."""
    from duralog.storage.checks.findings import Note

    by_text: dict[str, list[Note]] = {}
    for note in notes:
        by_text.setdefault(note.text, []).append(note)
    shown_notes: list[Note] = []
    for text, alike in by_text.items():
        shown_notes += alike[:_ALIKE]
        if len(alike) > _ALIKE:
            shown_notes.append(Note(f"and {len(alike) - _ALIKE:,} more", text))
    return shown_notes


def _summary_line(verified: Verified) -> str:
    totals = verified.totals
    counts = totals.counts
    rate = counts.size_bytes / totals.seconds if totals.seconds else 0
    verdict = plural(totals.errors, "finding") if totals.errors else "no findings"
    advice = f"; duralog repair --dry-run {verified.path} tells what can be done" if totals.errors else ""
    return (
        f"{plural(totals.partitions, 'partition')}, {plural(counts.batches, 'batch')}, {size_text(counts.size_bytes)}"
        f" in {totals.seconds:.2f} s ({size_text(int(rate))}/s): {verdict}{printable(advice)}"
    )
