"""`duralog stats`: counts the records, keys and bytes of topics. The work is in `duralog.operations.stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.engine import DEFAULT_MASTER, THREADS, Conf, EngineChoice, Master, StorageOptions, engine_given
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.html_page import HtmlPage, check_page_place, write_page
from duralog.cli.voice.options import (
    HOW,
    WHICH,
    AsJson,
    Data,
    Directory,
    NoProgress,
    PartitionChoice,
    Quiet,
    ReadThreads,
    TopicChoices,
    named_values,
)
from duralog.cli.voice.screen import Screen, screen
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.times import now_ms

if TYPE_CHECKING:
    from duralog.operations.stats import DirectoryStats
    from duralog.operations.workers import Workers

_HOT_KEYS = 12


def stats(
    ctx: typer.Context,
    directory: Directory = None,
    data: Data = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    prefix_length: Annotated[
        int | None,
        typer.Option(
            "--prefix-length",
            metavar="N",
            min=1,
            max=1_000_000,
            help="Also by the first N bytes of the key.",
            show_default=False,
            rich_help_panel=WHICH,
        ),
    ] = None,
    prefix_separator: Annotated[
        str | None,
        typer.Option(
            "--prefix-separator",
            metavar="TEXT",
            help="Also by the part of the key before this separator.",
            show_default=False,
            rich_help_panel=WHICH,
        ),
    ] = None,
    largest: Annotated[
        int,
        typer.Option(
            "--largest", metavar="N", min=0, max=1000, help="List the N largest records.", rich_help_panel=HOW
        ),
    ] = 5,
    no_compaction: Annotated[
        bool,
        typer.Option("--no-compaction", help="Skip the estimate of what compaction would save.", rich_help_panel=HOW),
    ] = False,
    html: HtmlPage = None,
    storage_option: StorageOptions = None,
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the next three)
    threads: ReadThreads = 2,  # noqa: ARG001
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Count records, keys and bytes of topics; draw charts.

    Counts by topic, partition and key prefix, and what compaction would save. All figures are exact. Nothing is
    changed, and the directory may be in use. For a cluster, give a quoted pattern or a JSON manifest of its
    directories: the records that consumers were served are counted.

    Exit code: 0 done, 1 something is damaged or cannot be read, 2 wrong usage, 130 interrupted.
    """
    chosen = engine_given(ctx, only_threads=("threads", "partition", "html"))
    path = chosen.directory(directory, data)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown():
        chosen.announce(quiet=quiet)
        with names_checked(path, topic, partition, may_be_a_cluster=True, at_once=chosen.is_spark):
            if html is not None:
                check_page_place(html)
            if not chosen.is_spark:
                from duralog.cli.voice.logs import say_warnings

                say_warnings(wanted=not quiet)
            from duralog.operations.chosen_partition import Choice
            from duralog.operations.stats import DirectoryStats

            request = DirectoryStats(
                path=path,
                choice=Choice(topic or None, partition),
                prefix_length=prefix_length,
                prefix_separator=prefix_separator,
                largest=largest,
                hot_keys=0 if html is None else _HOT_KEYS,
                compaction=not no_compaction,
                storage_options=storage_options,
            )
            with (
                screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
                chosen.workers() as workers,
            ):
                _run(request, workers, shown, html=html)


def _run(request: DirectoryStats, workers: Workers, screen: Screen, *, html: str | None) -> None:
    """Ends the command with an exit code if something is damaged or cannot be read."""
    from duralog.cli.stats.view import write_stats
    from duralog.operations.stats import stats

    report = stats(request, workers, on_progress=screen.bar.show)
    output = screen.output
    if output.as_json:
        output.object(report.to_dict())
    else:
        write_stats(output, report, request.path)
    if html is not None:
        from duralog.cli.stats.page import stats_page

        write_page(html, stats_page(report, request.path, now_ms()))
        if not output.as_json:
            output.note(html, "the same as a page, with charts: open it in a browser")
    if not report.is_sound:
        raise typer.Exit(FAILURE)
