"""`duralog job verify`: `duralog verify` on all cores of a cluster."""

from __future__ import annotations

from duralog.cli.job.spark_job import DEFAULT_MASTER, Conf, Location, Master, StorageOptions, job_app, on_spark
from duralog.cli.verify import Deep, run_verify
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import (
    AsJson,
    Data,
    IndexInterval,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoices,
    directory_given,
    index_interval_bytes,
    named_values,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked


@job_app.command()
def verify(
    path: Location = None,
    data: Data = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    deep: Deep = False,
    index_interval: IndexInterval = None,
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
    interval_bytes = index_interval_bytes(index_interval)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown(), names_checked(path, topic, partition):
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.verify import VerifyRequest

        request = VerifyRequest(
            path=path,
            choice=Choice(topic or None, partition),
            deep=deep,
            interval_bytes=interval_bytes,
            storage_options=storage_options,
        )
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("verify", master=master, conf=conf) as spark,
        ):
            run_verify(request, spark, shown)
