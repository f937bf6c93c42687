"""`duralog job repair`: `duralog repair` with partitions in parallel. `spark.jobs.repair` does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.common.failures import FAILURE, told_plainly
from duralog.cli.common.options import (
    HOW,
    AsJson,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
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


@job_app.command()
def repair(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="Also put back what is valid in quarantine.", rich_help_panel=HOW)
    ] = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Rebuild indexes, quarantine damaged bytes, in parallel.

    The same as duralog repair: sound partitions are not touched, and nothing is thrown away. No broker may have the
    directory open.

    Exit code: 0 all is well now, or would be; 1 something is still wrong; 2 wrong usage; 130 interrupted.
    """
    path = directory_given(path, data)
    with told_plainly(), names_checked(path, topic, partition):
        from duralog.cli.common.logs import say_nothing
        from duralog.cli.repair import write_end_of_repair, write_repair

        say_nothing()
        output = standard_output(as_json=as_json, quiet=quiet)
        with (
            on_spark("repair", master=master, conf=conf) as spark,
            ProgressBar(wanted=not (no_progress or quiet)) as progress,
        ):
            from duralog.spark.jobs.repair import repair as run

            report = run(
                spark.session,
                path,
                topics=topic or None,
                partition=partition,
                restore=restore,
                dry_run=dry_run,
                on_progress=progress.show,
            )
        for repaired in report.repairs:
            write_repair(output, repaired)
        write_end_of_repair(output, report.repairs, report)
        output.flush()
        if not report.is_well:
            raise typer.Exit(FAILURE)
