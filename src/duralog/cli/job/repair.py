"""`duralog job repair`: `duralog repair` with partitions in parallel."""

from __future__ import annotations

from duralog.cli.job.spark_job import DEFAULT_MASTER, Conf, Location, Master, job_app, on_spark
from duralog.cli.repair import Restore, run_repair
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import (
    AsJson,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoices,
    directory_given,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked


@job_app.command()
def repair(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    restore: Restore = False,
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
    with errors_shown(), names_checked(path, topic, partition):
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.repair import RepairRequest

        choice = Choice(topic or None, partition)
        request = RepairRequest(path=path, choice=choice, restore=restore, dry_run=dry_run)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("repair", master=master, conf=conf) as spark,
        ):
            run_repair(request, spark, shown)
