"""`duralog job stats`: `duralog stats` on all cores of a cluster."""

from __future__ import annotations

from duralog.cli.job.spark_job import DEFAULT_MASTER, Conf, Location, Master, StorageOptions, job_app, on_spark
from duralog.cli.stats.command import Largest, NoCompaction, PrefixLength, PrefixSeparator, run_stats
from duralog.cli.voice.failures import errors_shown
from duralog.cli.voice.options import AsJson, Data, NoProgress, Quiet, TopicChoices, directory_given, named_values
from duralog.cli.voice.screen import screen
from duralog.cli.voice.unknown_names import names_checked


@job_app.command()
def stats(
    path: Location = None,
    data: Data = None,
    topic: TopicChoices = None,
    storage_option: StorageOptions = None,
    prefix_length: PrefixLength = None,
    prefix_separator: PrefixSeparator = None,
    largest: Largest = 5,
    no_compaction: NoCompaction = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Count records, keys, bytes, batches of topics.

    By topic, partition and key prefix, and what compaction would save. All figures are exact. Nothing is changed, and
    the directory may be in use.

    Exit code: 0 done, 1 something is damaged or cannot be read, 2 wrong usage, 130 interrupted.
    """
    path = directory_given(path, data)
    storage_options = named_values("--storage-option", storage_option)
    with errors_shown(), names_checked(path, topic):
        from duralog.operations.chosen_partition import Choice
        from duralog.operations.stats import DirectoryStats

        request = DirectoryStats(
            path=path,
            choice=Choice(topic or None),
            prefix_length=prefix_length,
            prefix_separator=prefix_separator,
            largest=largest,
            compaction=not no_compaction,
            storage_options=storage_options,
        )
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("stats", master=master, conf=conf) as spark,
        ):
            run_stats(request, spark, shown)
