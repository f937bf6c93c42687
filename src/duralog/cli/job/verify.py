"""`duralog job verify`: `duralog verify` on all cores of a cluster. `spark.jobs.verify` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.common.failures import FAILURE, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    Data,
    NoProgress,
    PartitionChoice,
    Quiet,
    directory_given,
    named_values,
    parsed,
    standard_output,
)
from duralog.cli.common.progress import ProgressBar
from duralog.cli.common.unknown_names import names_checked
from duralog.cli.job.spark_job import (
    DEFAULT_MASTER,
    Conf,
    Location,
    Master,
    StorageOptions,
    TopicChoices,
    job_app,
    on_spark,
)
from duralog.config.byte_sizes import parse_bytes


@job_app.command()
def verify(
    path: Location = None,
    data: Data = None,
    topic: TopicChoices = None,
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
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Check every file of a directory, in parallel.

    Nothing is changed. The findings are those of duralog verify. DIR may also be an object store's: s3://bucket/logs.

    Exit code: 0 all is well, 1 there are findings or something cannot be read, 2 wrong usage, 130 interrupted.
    """
    path = directory_given(path, data)
    interval = None if index_interval is None else parsed("--index-interval", parse_bytes, index_interval)
    storage_options = named_values("--storage-option", storage_option)
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.verify import write_verification

        output = standard_output(as_json=as_json, quiet=quiet)
        with (
            on_spark("verify", master=master, conf=conf) as spark,
            ProgressBar(wanted=not (no_progress or quiet)) as progress,
        ):
            from duralog.spark.jobs.verify import verify as run

            report = run(
                spark.session,
                path,
                topics=topic or None,
                partition=partition,
                deep=deep,
                interval_bytes=interval,
                storage_options=storage_options,
                on_progress=progress.show,
            )
        write_verification(output, report, report.partitions, size_bytes=report.totals.counts.size_bytes)
        output.flush()
        if not report.is_sound:
            raise typer.Exit(FAILURE)
