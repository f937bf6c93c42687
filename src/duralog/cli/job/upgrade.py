"""`duralog job upgrade`: converts old message formats to the current one. `duralog.spark.jobs.upgrade` does the
work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from duralog.cli.job.spark_job import Location, job_app
from duralog.cli.voice.engine import DEFAULT_MASTER, Conf, Master, on_spark
from duralog.cli.voice.failures import FAILURE, errors_shown
from duralog.cli.voice.options import (
    AsJson,
    CodecChoice,
    Data,
    DryRun,
    NoProgress,
    PartitionChoice,
    Quiet,
    ServerProperties,
    TopicChoices,
    directory_given,
    parsed,
)
from duralog.cli.voice.screen import screen
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.cli.voice.unknown_names import names_checked
from duralog.config.error_text import printable

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.spark.jobs.upgrade import UpgradeReport

_NAMES = ("partition", "segments", "messages", "batches", "records", "bytes", "now", "digest")
_RIGHT = ("segments", "messages", "batches", "records", "bytes", "now")


@job_app.command()
def upgrade(
    path: Location = None,
    data: Data = None,
    dry_run: DryRun = False,
    topic: TopicChoices = None,
    partition: PartitionChoice = None,
    codec: CodecChoice = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Convert messages of format v0 and v1 to format v2.

    Offsets and timestamps are kept; so is each message's codec, unless --codec gives another. A digest of all records
    (offset, timestamp, key, value) is computed before and after: a segment is replaced only if both are equal. Damaged
    segments are left unchanged: run duralog repair first. No broker may have the directory open.

    Exit code: 0 everything has format v2 now, or would have; 1 something is left or failed; 2 wrong usage; 130
    interrupted.
    """
    path = directory_given(path, data)
    with errors_shown(), names_checked(path, topic, partition, at_once=True):
        from duralog.cli.voice.opened_store import broker_config
        from duralog.columnar.upgrading import UpgradeRules
        from duralog.format.compression import Codec

        rules = UpgradeRules(codec=None if codec is None else parsed("--codec", Codec.named, codec))
        config = broker_config(server_properties)
        with (
            screen(as_json=as_json, quiet=quiet, no_progress=no_progress) as shown,
            on_spark("upgrade", master=master, conf=conf or ()) as spark,
        ):
            from duralog.spark.jobs.upgrade import upgrade as run

            report = run(
                spark.session,
                path,
                topics=topic or None,
                partition=partition,
                rules=rules,
                config=config,
                dry_run=dry_run,
                on_progress=shown.bar.show,
            )
            _write(shown.output, report)
        if not report.is_done:
            raise typer.Exit(FAILURE)


def _write(output: Output, report: UpgradeReport) -> None:
    if output.as_json:
        for found in report.partitions:
            output.object(found.to_dict())
        output.object({"kind": "summary", "path": report.path, **report.summary()})
        return
    rows = [
        [
            printable(f"{upgrade.topic}-{upgrade.partition}"),
            f"{upgrade.segments:,}",
            f"{upgrade.messages:,}",
            "-" if report.dry_run else f"{upgrade.batches:,}",
            "-" if report.dry_run else f"{upgrade.before.records:,}",
            size_text(upgrade.bytes_before),
            "-" if report.dry_run else size_text(upgrade.bytes_after),
            "-" if report.dry_run else str(upgrade.after),
        ]
        for upgrade in report.upgrades
        if upgrade.segments
    ]
    if rows and not output.quiet:
        write_table(output, _NAMES, rows, right=_RIGHT, least=("digest", "batches", "segments"))
    for found in report.partitions:
        if found.failure is not None:
            output.damage(f"{found.partition}: {found.failure}")
        for base_offset, reason in found.upgrade.left.items() if found.upgrade is not None else ():
            output.damage(f"{found.partition}: the segment at offset {base_offset} stays as it is: {reason}")
    output.heading(_summary_line(report))


def _summary_line(report: UpgradeReport) -> str:
    totals = report.summary()
    if not totals["segments"]:
        words = ["nothing is of an old format" if report.is_done else "nothing was upgraded"]
    elif report.dry_run:
        words = [
            f"{plural(totals['messages'], 'message')} in {plural(totals['segments'], 'segment')} of"
            f" {plural(totals['upgraded'], 'partition')} would be upgraded, {size_text(totals['bytes_before'])};"
            " nothing was changed"
        ]
    else:
        words = [
            f"{plural(totals['messages'], 'message')} in {plural(totals['segments'], 'segment')} of"
            f" {plural(totals['upgraded'], 'partition')} upgraded, {size_text(totals['bytes_before'])} became"
            f" {size_text(totals['bytes_after'])} in {report.seconds:.2f} s; the records are the same, by their digests"
        ]
    if totals["left"]:
        words.append(f"not upgraded: {plural(totals['left'], 'segment')}")
    if totals["failures"]:
        words.append(f"failed: {plural(totals['failures'], 'partition')}")
    return "; ".join(words)
