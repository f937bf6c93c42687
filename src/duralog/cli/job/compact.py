"""`duralog job compact`: `duralog compact` with partitions in parallel."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.compact.command import Again, Roll
from duralog.cli.job.spark_job import DEFAULT_MASTER, Conf, Location, Master, job_app, on_spark
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import (
    HOW,
    AsJson,
    ConfigOverrides,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoices,
    config_settings,
    directory_given,
    map_size,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked


@job_app.command()
def compact(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    config: ConfigOverrides = None,
    again: Again = False,
    roll: Roll = False,
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
    with errors_shown(), names_checked(path, topic, partition):
        from duralog.cli.compact.run import run_compact
        from duralog.cli.voice.opened_store import broker_config
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.compact import CompactRequest, SparkCompaction
        from duralog.operations.compacted_logs import LogsToCompact

        logs = LogsToCompact(
            path=path,
            choice=Choice(topic or None, partition),
            topic_config=overrides,
            config=broker_config(server_properties),
            memory_bytes=memory_bytes,
            again=again,
        )
        how = SparkCompaction(dry_run=dry_run, min_dirty_ratio=min_dirty_ratio, shuffled=shuffled)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("compact", master=master, conf=conf) as spark,
        ):
            run_compact(CompactRequest(logs=logs, roll=roll, spark=how), spark, shown)
