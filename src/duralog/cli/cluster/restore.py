"""`duralog cluster restore`: topics of any number of log directories, in one new directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.cluster.cluster_command import Directories, MoreData, cluster_app, paths_given
from duralog.cli.voice.engine import StorageOptions
from duralog.cli.voice.failures import FAILURE, WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    WHERE_TO,
    WHICH,
    AsJson,
    DryRun,
    NoProgress,
    Quiet,
    ReadThreads,
    named_values,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.tables import Table, plural, size_text
from duralog.config.error_text import printable
from duralog.operations.addresses import is_url

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.operations.restore.report import RestoredPartition, RestoreReport

_PARTITIONS = {
    "partition": -32,
    "records": 12,
    "first offset": 12,
    "last offset": 12,
    "bytes": 16,
    "digest": -32,
}
_PLANNED = {"partition": -32, "start": 12, "end": 12, "bytes": 16, "from": -40}
_MOST_LINES = 20


@cluster_app.command()
def restore(
    directories: Directories = None,
    data: MoreData = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIR",
            help="The new directory: it must not exist, or be empty.",
            show_default=False,
            rich_help_panel=WHERE_TO,
        ),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="Only this topic, or pattern such as 'pay*'; may be given again.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    to_end: Annotated[
        bool,
        typer.Option(
            "--to-end", help="Also records above the high watermark, which consumers never saw.", rich_help_panel=WHICH
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Restore the rest if no copy has some offsets without damage.", rich_help_panel=HOW
        ),
    ] = False,
    with_access: Annotated[
        bool,
        typer.Option(
            "--with-access", help="Also the SCRAM users, ACLs and quotas of the old cluster.", rich_help_panel=WHICH
        ),
    ] = False,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    threads: ReadThreads = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Write topics into one new directory, with their offsets.

    Records keep offsets and timestamps, topics their ids and configs, groups their committed offsets. Each partition
    comes from the copy that counts, and from others where that is damaged. The result is read again and compared. The
    directory gets its name when it is complete. If a restore is interrupted, run it again. The sources are only read.

    Exit code: 0 restored and verified, or it would be; with --accept-loss also without the lost offsets; 1 offsets are
    lost or an error; 2 wrong usage; 130 interrupted.
    """
    paths = paths_given(directories, data)
    storage_options = named_values("--storage-option", storage_option)
    if is_url(to):
        raise WrongUsage(f"--to: {to!r} is a URL: give a directory of this machine, and copy it there afterwards")
    with errors_shown():
        from duralog.cli.voice.compilation import announce_compilation
        from duralog.cli.voice.logs import say_nothing

        announce_compilation(quiet=quiet)
        say_nothing()  # The report has all that is logged.
        from duralog.operations.restore.report import RestoreRequest
        from duralog.operations.restore.restore import restore as restore_topics
        from duralog.operations.workers import Threads

        request = RestoreRequest(
            paths=paths,
            target=to,
            topics=topic or (),
            storage_options=storage_options,
            to_end=to_end,
            accept_loss=accept_loss,
            with_access=with_access,
            dry_run=dry_run,
        )
        with screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown:
            report = restore_topics(request, Threads(threads), on_progress=shown.bar.show)
            _Shown(shown.output).show(report)
        if not report.is_made and (not dry_run or (report.lost and not accept_loss)):
            raise typer.Exit(FAILURE)


class _Shown:
    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, report: RestoreReport) -> None:
        output = self._output
        if output.as_json:
            self._json(report)
        elif not output.quiet:
            self._tables(report)
        for found in report.partitions:
            self._losses(found)
        if not output.as_json:
            for problem in report.problems:
                output.note(problem.directory, problem.text)
            for note in report.notes:
                output.note(note.place, note.text)
            output.heading(_summary(report))

    def _json(self, report: RestoreReport) -> None:
        for problem in report.problems:
            self._output.object(problem.to_dict())
        for topic in report.topics:
            self._output.object(topic.to_dict())
        for found in report.partitions:
            self._output.object(found.to_dict())
        for group in report.groups:
            self._output.object(group.to_dict())
        for note in report.notes:
            self._output.object(note.to_dict())
        self._output.object(report.to_dict())

    def _tables(self, report: RestoreReport) -> None:
        output = self._output
        is_copied = report.is_made or any(found.contents is not None for found in report.partitions)
        table = Table(output, _PARTITIONS if is_copied else _PLANNED, least=("first offset", "bytes"))
        table.begin()
        for found in report.partitions:
            table.row(_copied(found) if is_copied else _planned(found))
        table.end()
        lines = [printable(str(each)) for found in report.partitions for each in found.healed]
        lines += [
            f"{found.partition}: the transaction of producer {each.producer_id} from offset {each.first_offset} on was"
            f" open: {'committed' if each.committed else 'aborted'} at offset {each.marker_offset}, since {each.reason}"
            for found in report.partitions
            for each in found.transactions
        ]
        lines += [
            printable(f"group {group.name}: {plural(len(group.offsets), 'committed offset')}")
            for group in report.groups
        ]
        if report.access is not None:
            lines.insert(0, str(report.access))
        for line in lines[:_MOST_LINES]:
            output.line(line)
        if len(lines) > _MOST_LINES:
            output.line(f"and {len(lines) - _MOST_LINES:,} more lines: --json shows all")

    def _losses(self, found: RestoredPartition) -> None:
        for each in found.lost:
            if each.first_offset is None:
                self._output.damage(f"{found.partition}: lost: {each.reason}")
            else:
                self._output.damage(
                    f"{found.partition}: offsets {each.first_offset} to {each.last_offset}: lost: {each.reason}"
                )


def _copied(found: RestoredPartition) -> list[str]:
    contents = found.contents
    name = printable(str(found.partition))
    if contents is None:
        return [name, *["-"] * 5]
    return [
        name,
        f"{contents.records:,}",
        "-" if contents.first_offset is None else str(contents.first_offset),
        "-" if contents.last_offset is None else str(contents.last_offset),
        f"{contents.size_bytes:,}",
        contents.digest,
    ]


def _planned(found: RestoredPartition) -> list[str]:
    return [
        printable(str(found.partition)),
        str(found.start_offset),
        str(found.end_offset),
        f"{found.planned_bytes:,}",
        "-" if found.source is None else printable(found.source),
    ]


def _summary(report: RestoreReport) -> str:
    what = (
        f"{plural(len(report.topics), 'topic')}, {plural(len(report.partitions), 'partition')},"
        f" {size_text(report.size_bytes)}"
    )
    if report.dry_run:
        verdict = "would be lost in part: see above" if report.lost else "would be restored"
        return f"{what} {verdict}; nothing was changed"
    if not report.is_made:
        return f"{what}: not restored, because offsets are lost; --accept-loss restores the rest"
    rate = report.size_bytes / report.seconds if report.seconds else 0
    return (
        f"{what} and {plural(len(report.groups), 'group')} restored to {report.target} in {report.seconds:.2f} s"
        f" ({size_text(int(rate))}/s): all records are equal to those of the source"
        + (", except for what was lost" if report.lost else "")
    )
