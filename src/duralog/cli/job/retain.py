"""`duralog job retain`: `duralog retain` with partitions in parallel."""

from __future__ import annotations

from duralog.cli.job.spark_job import DEFAULT_MASTER, Conf, Location, Master, job_app, on_spark
from duralog.cli.retain import RetentionBytes, RetentionMs, retention_overrides, run_retain, unknown_retention
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import (
    AsJson,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoices,
    directory_given,
    now_ms,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked


@job_app.command()
def retain(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    retention_ms: RetentionMs = None,
    retention_bytes: RetentionBytes = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Delete the segments that have expired, in parallel.

    The same as duralog retain. Without --dry-run, no broker may have the directory open.

    Exit code: 0 done, 1 something could not be read or deleted, 2 wrong usage, 130 interrupted.
    """
    path = directory_given(path, data)
    with errors_shown(), names_checked(path, topic, partition):
        from duralog.cli.voice.opened_store import broker_config
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.retain import RetainRequest

        request = RetainRequest(
            path=path,
            now_ms=now_ms(),
            choice=Choice(topic or None, partition),
            overrides=retention_overrides(retention_ms, retention_bytes),
            config=broker_config(server_properties),
            dry_run=dry_run,
        )
        unknown = unknown_retention(request)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("retain", master=master, conf=conf) as spark,
        ):
            run_retain(request, spark, shown, unknown=unknown, are_defaults_kafkas=server_properties is None)
