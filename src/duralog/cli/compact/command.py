"""`duralog compact`: compact a log directory that no broker has open, or explain what compaction would do to it."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    ConfigOverrides,
    Data,
    Directory,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoice,
    config_settings,
    local_directory_given,
    map_size,
    now_ms,
    parsed_time,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked

Again = Annotated[
    bool,
    typer.Option("--again", help="Compact from the start again: removes old tombstones.", rich_help_panel=HOW),
]
Roll = Annotated[
    bool,
    typer.Option("--roll", help="Begin new segments first: the active one is compacted, too.", rich_help_panel=HOW),
]


def compact(
    directory: Directory = None,
    data: Data = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", "-e", help="Only show what would happen, or why nothing would.", rich_help_panel=HOW),
    ] = False,
    topic: TopicChoice = None,
    partition: PartitionChoice = None,
    config: ConfigOverrides = None,
    again: Again = False,
    roll: Roll = False,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", metavar="N", min=1, max=64, help="The number of threads for each log.", rich_help_panel=HOW
        ),
    ] = 2,
    map_bytes: Annotated[
        str | None,
        typer.Option(
            "--map-bytes",
            metavar="SIZE",
            help="Memory for the map of keys; without it, log.cleaner.dedupe.buffer.size.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    records: Annotated[
        int,
        typer.Option(
            "--records", "-r", metavar="N", min=0, help="With --explain: list N removed records.", rich_help_panel=HOW
        ),
    ] = 0,
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="TIME",
            help="With --explain: as if it were that time.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Compact compacted topics, or explain why it does not happen.

    Only the last record of each key stays. It does what Kafka's log cleaner does, however little is new, and continues
    where the cleaner stopped. With --explain nothing is changed and the directory may be in use; without it, no
    broker may have it open.

    Exit code: 0 done, 1 a partition could not be compacted or read, or is damaged, 2 wrong usage, 130 interrupted.
    """
    given = local_directory_given(directory, data)
    overrides = config_settings(config)
    memory_bytes = None if map_bytes is None else map_size(map_bytes)
    if explain and roll:
        raise WrongUsage("--roll changes the directory, --explain does not: give one of them")
    if not explain and (records or now is not None):
        raise WrongUsage("--records and --now go with --explain")
    at_ms = parsed_time("--now", now)
    with errors_shown(), names_checked(given, topic, partition):
        from duralog.cli.voice.compilation import announce_compilation
        from duralog.cli.voice.logs import say_warnings

        announce_compilation(quiet=quiet)
        say_warnings(wanted=not quiet)
        from duralog.cli.compact.explain import run_explain
        from duralog.cli.compact.run import run_compact
        from duralog.cli.voice.opened_store import broker_config
        from duralog.operations.chosen_partition import chosen_in
        from duralog.operations.compact import CompactRequest
        from duralog.operations.compacted_logs import LogsToCompact
        from duralog.operations.explain import ExplainRequest
        from duralog.operations.workers import Threads

        path, choice = chosen_in(given, None if topic is None else [topic], partition)
        if overrides and choice.topics is None:
            raise WrongUsage("--config is of one topic: give --topic")
        logs = LogsToCompact(
            path=path,
            choice=choice,
            topic_config=overrides,
            config=broker_config(server_properties),
            memory_bytes=memory_bytes,
            again=again,
        )
        with screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown:
            if explain:
                at_ms = now_ms() if at_ms is None else at_ms
                run_explain(ExplainRequest(logs=logs, now_ms=at_ms, records=records), shown)
            else:
                run_compact(CompactRequest(logs=logs, roll=roll), Threads(threads), shown)
