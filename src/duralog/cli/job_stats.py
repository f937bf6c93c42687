"""`duralog job stats`: what is in the topics of a directory. `spark.jobs.stats` does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.failures import FAILURE, printable, told_plainly
from duralog.cli.options import HOW, WHICH, AsJson, NoProgress, Quiet, named_values, standard_output
from duralog.cli.spark_job import (
    DEFAULT_MASTER,
    Conf,
    JobProgress,
    Location,
    Master,
    StorageOptions,
    TopicChoices,
    job_app,
    spark_session,
)
from duralog.cli.tables import fitting, header_line, plural, row_line, size_text
from duralog.cli.times import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duralog.cli.output import Output
    from duralog.spark.jobs.stats import Figures, LogFigures, StatsReport


@job_app.command()
def stats(
    path: Location,
    topic: TopicChoices = None,
    storage_option: StorageOptions = None,
    prefix_length: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Also by the first N bytes of the key.", show_default=False, rich_help_panel=WHICH
        ),
    ] = None,
    prefix_separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR",
            help="Also by what comes before this in the key.",
            show_default=False,
            rich_help_panel=WHICH,
        ),
    ] = None,
    largest: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=1000, help="Tell so many of the largest records.", rich_help_panel=HOW),
    ] = 5,
    no_compaction: Annotated[
        bool, typer.Option("--no-compaction", help="Do not look what compaction would save.", rich_help_panel=HOW)
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Count records, keys, bytes and batches by topic, partition and key prefix, and what compaction would save.

    All figures are exact. Nothing is changed, and the directory may be in use.

    Exit code: 0 done, 1 something is damaged or cannot be read, 2 wrong usage, 130 interrupted.
    """
    storage_options = named_values("--storage-option", storage_option)
    with told_plainly():
        output = standard_output(as_json=as_json, quiet=quiet)
        with (
            spark_session("stats", master=master, conf=conf) as spark,
            JobProgress(wanted=not (no_progress or quiet)) as progress,
        ):
            from duralog.spark.jobs.stats import stats as run

            report = run(
                spark,
                path,
                topics=topic or None,
                prefix_length=prefix_length,
                prefix_separator=prefix_separator,
                largest=largest,
                compaction=not no_compaction,
                storage_options=storage_options,
                on_progress=progress.show,
            )
        if as_json:
            output.object(report.to_dict())
        else:
            _write(output, report, path)
        output.flush()
        if not report.is_sound:
            raise typer.Exit(FAILURE)


def _write(output: Output, report: StatsReport, path: str) -> None:
    for partition in report.partitions:
        for damage in partition.damage:
            output.damage(damage)
    output.heading("Topics and partitions")
    _write_logs(output, [row for topic in report.topics for row in _with_partitions(topic, report.partitions)])
    output.heading("Codecs and batches")
    _write_batches(output, report.topics)
    if report.prefixes:
        output.heading("Prefixes of keys")
        _write_prefixes(output, report.prefixes)
    if any(topic.largest_records for topic in report.topics):
        output.heading("Largest records")
        _write_largest(output, report.topics)
    partitions = plural(len(report.partitions), "partition")
    output.note(path, f"{size_text(report.read_bytes)} of {partitions} read in {report.seconds:.1f} s")


def _with_partitions(topic: LogFigures, partitions: Sequence[LogFigures]) -> list[LogFigures]:
    of_topic = [partition for partition in partitions if partition.topic == topic.topic]
    return [topic, *of_topic] if len(of_topic) > 1 else of_topic


def _write_logs(output: Output, rows: Sequence[LogFigures]) -> None:
    names = (
        *("topic", "partition", "records", "keys", "duplicates", "tombstones", "no key"),
        *("on disk", "unpacked", "ratio", "first", "last", "compaction saves"),
    )
    _table(
        output,
        names,
        [
            (
                printable(row.topic),
                "all" if row.partition is None else str(row.partition),
                *_counts(row),
                _time(row.first_timestamp_ms),
                _time(row.last_timestamp_ms),
                "-"
                if row.compaction is None
                else f"{row.compaction.records:,}, {size_text(row.compaction.size_bytes)}",
            )
            for row in rows
        ],
        right=names[1:10],
    )


def _write_prefixes(output: Output, rows: Sequence[Figures]) -> None:
    from duralog.spark.jobs.stats_report import key_text

    names = (
        *("topic", "partition", "prefix", "records", "keys", "duplicates", "tombstones", "no key"),
        *("on disk", "contents", "ratio", "first", "last"),
    )
    _table(
        output,
        names,
        [
            (
                printable(row.topic),
                str(row.partition),
                "-" if row.prefix is None else key_text(row.prefix) or "",
                *_counts(row),
                _time(row.first_timestamp_ms),
                _time(row.last_timestamp_ms),
            )
            for row in rows
        ],
        right=(names[1], *names[3:11]),
    )


def _counts(row: Figures) -> tuple[str, ...]:
    ratio = row.compression_ratio
    numbers = (row.records, row.distinct_keys, row.duplicate_records, row.tombstones, row.keyless_records)
    return (
        *(f"{number:,}" for number in numbers),
        size_text(row.disk_bytes),
        size_text(row.unpacked_bytes),
        "-" if ratio is None else f"{ratio:.2f}",
    )


def _write_batches(output: Output, topics: Sequence[LogFigures]) -> None:
    """The sizes of single batches are known of a topic, not of each codec: several codecs have a row for all before."""
    names = ("topic", "codec", "batches", "on disk", "unpacked", "mean", "smallest", "largest", "records")
    rows = []
    for topic in topics:
        sizes = (
            size_text(topic.smallest_batch_bytes or 0),
            size_text(topic.largest_batch_bytes or 0),
            f"at most {topic.most_records_of_a_batch:,}",
        )
        every = ("batches", "disk_bytes", "unpacked_bytes")
        found = [(codec, [counts[name] for name in every]) for codec, counts in topic.codecs.items()]
        if len(found) > 1:
            together = [sum(column) for column in zip(*(counts for _, counts in found), strict=True)]
            found.insert(0, ("all", together))
        for place, (codec, (batches, disk_bytes, unpacked_bytes)) in enumerate(found):
            rows.append(
                (
                    printable(topic.topic),
                    codec,
                    f"{batches:,}",
                    size_text(disk_bytes),
                    size_text(unpacked_bytes),
                    size_text(disk_bytes // batches),
                    *(sizes if place == 0 else ("-",) * len(sizes)),
                )
            )
    _table(output, names, rows, right=names[2:])


def _write_largest(output: Output, topics: Sequence[LogFigures]) -> None:
    from duralog.spark.jobs.stats_report import key_text

    names = ("topic", "partition", "offset", "size", "time", "key")
    rows = [
        (
            printable(topic.topic),
            str(record.partition),
            str(record.offset),
            size_text(record.size_bytes),
            _time(record.timestamp_ms),
            "-" if record.key is None else key_text(record.key) or "",
        )
        for topic in topics
        for record in topic.largest_records
    ]
    _table(output, names, rows, right=names[1:4])


def _table(output: Output, names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str]) -> None:
    columns = fitting(names, right=right, rows=rows)
    output.columns(header_line(columns))
    for row in rows:
        output.line(row_line(columns, row))


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else format_time(timestamp_ms)
