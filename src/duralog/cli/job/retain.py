"""`duralog job retain`: `duralog retain` with partitions in parallel. `spark.jobs.retain` does the work."""

from __future__ import annotations

import typer

from duralog.cli.applied_retention import applied_retentions
from duralog.cli.common.failures import FAILURE, say, told_plainly
from duralog.cli.common.options import (
    AsJson,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    directory_given,
    standard_output,
)
from duralog.cli.common.progress import ProgressBar
from duralog.cli.common.unknown_names import names_checked
from duralog.cli.job.spark_job import (
    DEFAULT_MASTER,
    Conf,
    Location,
    Master,
    TopicChoices,
    job_app,
    on_spark,
)
from duralog.cli.retain import RetentionBytes, RetentionMs, note_defaults, unknown_configs, write_removals
from duralog.errors import DuralogError


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
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.common.opened_store import broker_config

        limits = (("retention.ms", retention_ms), ("retention.bytes", retention_bytes))
        overrides = {name: value for name, value in limits if value is not None}
        output = standard_output(as_json=as_json, quiet=quiet)
        unknown = None if overrides else unknown_configs(path)
        if unknown is not None and not dry_run:
            raise DuralogError(f"{path}: {unknown}")
        with (
            on_spark("retain", master=master, conf=conf) as spark,
            ProgressBar(wanted=not (no_progress or quiet)) as progress,
        ):
            from duralog.spark.jobs.retain import retain as run

            report = run(
                spark.session,
                path,
                topics=topic or None,
                partition=partition,
                overrides=overrides,
                config=broker_config(server_properties),
                dry_run=dry_run,
                on_progress=progress.show,
            )
        for failed, reason in report.failures.items():
            say(f"error: {failed}: {reason}")
        if unknown is not None:
            output.note(path, unknown)
        elif server_properties is None:
            note_defaults(output, path, report.configs.values())
        configs = {found.topic: config for found, config in report.configs.items()}
        applied = applied_retentions(configs, overrides)
        write_removals(output, report.removals, applied, partitions=len(report.configs), dry_run=dry_run)
        output.flush()
        if report.failures:
            raise typer.Exit(FAILURE)
