"""`duralog verify`: checks every file of a log directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.engine import DEFAULT_MASTER, THREADS, Conf, EngineChoice, Master, StorageOptions, engine_given
from duralog.cli.voice.failures import FAILURE, WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    Data,
    Directory,
    IndexInterval,
    NoProgress,
    PartitionChoice,
    Quiet,
    ReadThreads,
    TopicChoices,
    index_interval_bytes,
    named_values,
)
from duralog.cli.voice.screen import Screen, screen
from duralog.cli.voice.tables import Table, plural, size_text
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duralog.cli.voice.output import Output
    from duralog.errors import CorruptRecord
    from duralog.operations.verify import ToVerify, VerifyRequest
    from duralog.operations.workers import Workers
    from duralog.reports.verify import VerifyReport
    from duralog.storage.checks.findings import Note
    from duralog.storage.checks.partition import PartitionReport

_COLUMNS = {
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
MORE_ARGUMENTS = {"allow_extra_args": True}
"""Of the command: several directories are those of a cluster."""
_ALIKE = 3
"""How many notes with the same text are listed."""


def verify(
    ctx: typer.Context,
    directory: Directory = None,
    data: Data = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also unpack every batch and decode every record.", rich_help_panel=HOW)
    ] = False,
    index_interval: IndexInterval = None,
    storage_option: StorageOptions = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the next three)
    threads: ReadThreads = 2,  # noqa: ARG001
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Check every file of a directory; nothing is changed.

    Checksums, offsets, all indexes against their logs, producer snapshots, leader epochs, checkpoints, metadata. DIR
    may also be one partition's folder; with --engine spark also an object store's: s3://bucket/logs.
    Several directories are those of a cluster: their copies are compared, as by duralog cluster verify.

    Exit code: 0 all is well, 1 there are findings or something cannot be read, 2 wrong usage, 130 interrupted.
    """
    if ctx.args:
        if deep or index_interval is not None:
            raise WrongUsage("--deep and --index-interval are for one directory: of several, the copies are compared")
        from duralog.cli.cluster.command import verify as compare

        compare(
            ctx,
            [*([directory] if directory else []), *ctx.args],
            [data] if data else None,
            topic=topic,
            partition=partition,
            storage_option=storage_option,
            as_json=as_json,
            quiet=quiet,
            no_progress=no_progress,
        )
        return
    chosen = engine_given(ctx)
    path = chosen.directory(directory, data)
    interval_bytes = index_interval_bytes(index_interval)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown(), names_checked(path, topic, partition, at_once=chosen.is_spark):
        chosen.announce(quiet=quiet)
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.verify import VerifyRequest

        request = VerifyRequest(
            path=path,
            choice=Choice(topic or None, partition),
            deep=deep,
            interval_bytes=interval_bytes,
            storage_options=storage_options,
        )
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            _run(request, workers, shown)


def _run(request: VerifyRequest, workers: Workers, screen: Screen) -> None:
    """Ends the command with an exit code if there are findings."""
    from duralog.operations.verify import verify

    shown = _Shown(screen.output)
    verified = verify(request, workers, on_progress=screen.bar.show, on_start=shown.start, on_partition=shown.add)
    shown.end(verified)
    if not verified.is_sound:
        raise typer.Exit(FAILURE)


class _Shown:
    """A line or an object for each partition as it comes, then the findings."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._table = Table(output, _COLUMNS, least=_LEAST)

    def start(self, work: ToVerify) -> None:
        """The size of all logs gives the width of the columns."""
        output = self._output
        columns = _COLUMNS if output.width is None else _tight_columns(work.size_bytes)
        self._table = Table(output, columns, least=_LEAST)
        self._table.begin()

    def add(self, report: PartitionReport) -> None:
        if self._output.as_json:
            self._output.object(report.to_dict())
            _write_findings(self._output, report.errors, report.notes)
        elif not self._output.quiet:
            self._table.row(_cells(report))

    def end(self, verified: VerifyReport) -> None:
        output = self._output
        self._table.end()
        if output.as_json:
            _write_findings(output, verified.errors, verified.notes)
            output.object({"kind": "summary", "path": verified.path, **verified.totals.to_dict()})
            return
        errors, notes = verified.all_errors, verified.all_notes
        if not output.quiet and (errors or notes):
            output.line("")
        _write_findings(output, errors, _without_repetition(notes))
        output.heading(_summary_line(verified))


def _tight_columns(size_bytes: int) -> dict[str, int]:
    """As wide as numbers can get in logs of that size."""
    most = {
        "partition": -_SHORT_NAME,
        "batches": len(f"{size_bytes // _SMALLEST_BATCH_BYTES:,}"),
        "records": len(f"{size_bytes // _SMALLEST_RECORD_BYTES:,}"),
        "bytes": len(f"{size_bytes:,}"),
    }
    return {name: most.get(name, width) for name, width in _COLUMNS.items()}


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
    """The first notes with the same text, and the number of the others."""
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


def _summary_line(verified: VerifyReport) -> str:
    totals = verified.totals
    counts = totals.counts
    rate = counts.size_bytes / totals.seconds if totals.seconds else 0
    verdict = plural(totals.errors, "finding") if totals.errors else "no findings"
    advice = f"; duralog repair --dry-run {verified.path} shows what can be done" if totals.errors else ""
    return (
        f"{plural(totals.partitions, 'partition')}, {plural(counts.batches, 'batch')}, {size_text(counts.size_bytes)}"
        f" in {totals.seconds:.2f} s ({size_text(int(rate))}/s): {verdict}{printable(advice)}"
    )
