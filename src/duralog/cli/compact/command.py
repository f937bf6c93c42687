"""`duralog compact`: compact a log directory that no broker has open, or explain what compaction would do to it."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.voice.engine import DEFAULT_MASTER, THREADS, Conf, EngineChoice, Master, engine_given
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    MAP_BYTES,
    SPARK,
    AsJson,
    ConfigOverrides,
    Data,
    Directory,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoices,
    config_settings,
    map_size,
    parsed_time,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.times import now_ms


def compact(
    ctx: typer.Context,
    directory: Directory = None,
    data: Data = None,
    dry_run: DryRun = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", "-e", help="Like --dry-run, with the reasons.", rich_help_panel=HOW),
    ] = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    config: ConfigOverrides = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Compact from the start again: removes old tombstones.", rich_help_panel=HOW),
    ] = False,
    roll: Annotated[
        bool,
        typer.Option("--roll", help="Start new segments first: the active one is compacted, too.", rich_help_panel=HOW),
    ] = False,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(
            "--min-dirty-ratio",
            metavar="R",
            min=0,
            max=1,
            help="Skip logs whose share of new bytes is not larger than this.",
            show_default=False,
            rich_help_panel=SPARK,
        ),
    ] = None,
    map_bytes: Annotated[str | None, MAP_BYTES] = None,
    shuffled: Annotated[
        bool | None,
        typer.Option(
            "--shuffled/--rounds",
            help="Compact logs with more keys than fit into a map by many tasks at once, or in rounds. --shuffled does"
            " so with all logs.",
            show_default=False,
            rich_help_panel=SPARK,
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
    engine: EngineChoice = THREADS,  # noqa: ARG001 (engine_given reads it, and the next three)
    threads: Annotated[  # noqa: ARG001
        int,
        typer.Option(
            "--threads", metavar="N", min=1, max=64, help="The number of threads for each log.", rich_help_panel=HOW
        ),
    ] = 2,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,  # noqa: ARG001
    conf: Conf = None,  # noqa: ARG001
) -> None:
    """Compact compacted topics, or explain why none is compacted.

    Only the last record of each key stays. It does the work of Kafka's log cleaner, even if little is new, and
    continues where the cleaner stopped. With --dry-run or --explain nothing is changed and the directory may be in use;
    without them, no broker may have it open. On Spark, small partitions share a task, and a partition with too many
    keys is divided among many tasks.

    Exit code: 0 done, 1 a partition could not be compacted or read, or is damaged, 2 wrong usage, 130 interrupted.
    """
    chosen = engine_given(
        ctx,
        only_threads=("threads", "explain", "records", "now"),
        only_spark=("min_dirty_ratio", "shuffled"),
    )
    given = chosen.directory(directory, data)
    overrides = config_settings(config)
    memory_bytes = None if map_bytes is None else map_size(map_bytes)
    if roll and (explain or dry_run):
        rehearsal = "--explain" if explain else "--dry-run"
        raise WrongUsage(f"--roll changes the directory, {rehearsal} does not: give one of them")
    if not explain and (records or now is not None):
        raise WrongUsage("--records and --now go with --explain")
    explain = explain or (dry_run and not chosen.is_spark)
    at_ms = parsed_time("--now", now)
    with errors_shown(), names_checked(given, topic, partition, at_once=chosen.is_spark):
        chosen.announce(quiet=quiet)
        from duralog.cli.compact.explain import run_explain
        from duralog.cli.compact.run import run_compact
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import broker_config
        from duralog.operations.compact import CompactRequest, SparkCompaction
        from duralog.operations.compacted_logs import LogsToCompact
        from duralog.operations.explain import ExplainRequest

        say_warnings(wanted=not quiet, reports_offline=True)
        path, choice = chosen.choice(given, topic, partition)
        if overrides and choice.topics is None:
            raise WrongUsage("--config is of topics: give --topic")
        logs = LogsToCompact(
            path=path,
            choice=choice,
            topic_config=overrides,
            config=broker_config(server_properties),
            memory_bytes=memory_bytes,
            again=again,
        )
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            chosen.workers() as workers,
        ):
            if explain:
                at_ms = now_ms() if at_ms is None else at_ms
                run_explain(ExplainRequest(logs=logs, now_ms=at_ms, records=records), shown)
            else:
                on_spark = SparkCompaction(dry_run=dry_run, min_dirty_ratio=min_dirty_ratio, shuffled=shuffled)
                run_compact(CompactRequest(logs=logs, roll=roll, spark=on_spark), workers, shown)
