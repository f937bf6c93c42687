"""`duralog job reindex`: rebuilds indexes from the logs. `duralog.spark.jobs.reindex` does the work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from duralog.cli.job.spark_job import Location, job_app
from duralog.cli.voice.engine import DEFAULT_MASTER, Conf, Master, on_spark
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.options import (
    AsJson,
    Data,
    NoProgress,
    PartitionChoice,
    Quiet,
    TopicChoices,
    directory_given,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.spark.jobs.reindex import ReindexReport

_NAMES = ("partition", "what", "file", "detail")


@job_app.command()
def reindex(
    path: Location = None,
    data: Data = None,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Rebuild all indexes from the logs.

    Offset, time and transaction indexes, including missing ones. Logs are not touched. A partition with a damaged log
    is left unchanged: run duralog repair first. No broker may have the directory open.

    Exit code: 0 done, 1 a log is damaged or something could not be read or written, 2 wrong usage, 130 interrupted.
    """
    path = directory_given(path, data)
    with errors_shown(), names_checked(path, topic, partition, at_once=True):
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("reindex", master=master, conf=conf or ()) as spark,
        ):
            from duralog.spark.jobs.reindex import reindex as run

            report = run(spark.session, path, topics=topic or None, partition=partition, on_progress=shown.bar.show)
            _write(shown.output, report)
        if not report.is_done:
            raise typer.Exit(FAILURE)


def _write(output: Output, report: ReindexReport) -> None:
    totals = report.summary()
    if output.as_json:
        for found in report.partitions:
            output.object(found.to_dict())
        output.object({"kind": "summary", "path": report.path, **totals})
        return
    rows = [
        [printable(str(found.partition)), action.verb, printable(os.path.basename(action.file)), action.detail]
        for found in report.partitions
        for action in found.actions
    ]
    if rows and not output.quiet:
        write_table(output, _NAMES, rows, cut=("partition", "detail"))
    for found in report.partitions:
        if found.failure is not None:
            output.damage(f"{found.partition}: {found.failure}")
    failures = f"; failed: {plural(totals['failures'], 'partition')}" if totals["failures"] else ""
    indexed = plural(totals["partitions"] - totals["failures"], "partition")
    output.heading(
        f"{plural(totals['segments'], 'segment')} of {indexed} indexed,"
        f" {size_text(totals['bytes'])} in {report.seconds:.2f} s;"
        f" {plural(totals['changed'], 'file')} changed{failures}"
    )
