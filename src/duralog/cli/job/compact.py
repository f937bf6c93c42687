"""`duralog job compact`: `duralog compact` with partitions in parallel. `spark.jobs.compact` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.common.failures import FAILURE, WrongUsage, printable, say, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    ConfigOverrides,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    config_settings,
    directory_given,
    standard_output,
)
from duralog.cli.common.unknown_names import names_checked
from duralog.cli.job.spark_job import (
    DEFAULT_MASTER,
    Conf,
    JobProgress,
    Location,
    Master,
    TopicChoices,
    job_app,
    map_size,
    spark_session,
)

if TYPE_CHECKING:
    from duralog.cli.common.output import Output
    from duralog.spark.jobs.compaction.report import CompactJobReport


@job_app.command()
def compact(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    config: ConfigOverrides = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="As if nothing had been compacted: old tombstones go.", rich_help_panel=HOW),
    ] = False,
    roll: Annotated[
        bool,
        typer.Option("--roll", help="Begin new segments first: the active one is compacted, too.", rich_help_panel=HOW),
    ] = False,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(
            "--min-dirty-ratio",
            metavar="R",
            min=0,
            max=1,
            help="Leave logs alone of which no larger share is new.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    map_bytes: Annotated[
        str | None,
        typer.Option(
            "--map-bytes",
            metavar="SIZE",
            help="Memory of a task for its map of keys; without it, log.cleaner.dedupe.buffer.size.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    shuffled: Annotated[
        bool | None,
        typer.Option(
            "--shuffled/--rounds",
            help="Logs with more keys than fit into a map: by many tasks at once, or round after round."
            " --shuffled does so with all logs.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Compact compacted topics, partitions in parallel.

    Of each key, only the last record stays. The same as duralog compact, small partitions together in a task;
    one with too many keys for a task is shared by many. Without --dry-run, no broker may have the directory open.

    Exit code: 0 done, 1 a partition could not be compacted or read, or is damaged, 2 wrong usage, 130 interrupted.
    """
    path = directory_given(path, data)
    overrides = config_settings(config)
    if overrides and not topic:
        raise WrongUsage("--config is of topics: give --topic")
    if dry_run and roll:
        raise WrongUsage("--roll changes the directory, --dry-run does not: give one of them")
    memory_bytes = None if map_bytes is None else map_size(map_bytes)
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.common.opened_store import broker_config

        output = standard_output(as_json=as_json, quiet=quiet)
        with (
            spark_session("compact", master=master, conf=conf) as spark,
            JobProgress(wanted=not (no_progress or quiet)) as progress,
        ):
            from duralog.spark.jobs.compact import compact as run

            report = run(
                spark,
                path,
                topics=topic or None,
                partition=partition,
                topic_config=overrides,
                memory_bytes=memory_bytes,
                shuffled=shuffled,
                again=again,
                roll=roll,
                min_dirty_ratio=min_dirty_ratio,
                config=broker_config(server_properties),
                dry_run=dry_run,
                on_progress=progress.show,
            )
        _write(report, output)
        output.flush()
        if not report.is_well:
            raise typer.Exit(FAILURE)


def _write(report: CompactJobReport, output: Output) -> None:
    from duralog.cli.compact.run import CompactionTotals, summary_object, write_reports

    totals = CompactionTotals(failed=len(report.failures), seconds=report.seconds, is_rehearsal=report.is_rehearsal)
    for found in report.partitions:
        if found.failure is not None:
            say(f"error: {printable(f'{found.partition}: {found.failure}')}")
        if found.report is not None:
            totals.add(found.report)
        if output.as_json:
            output.object(found.to_dict())
    if output.as_json:
        output.object(summary_object(totals))
        return
    if not report.partitions:
        output.note(report.path, "none of its partitions is of a compacted topic")
    write_reports(report.reports, totals, output)
