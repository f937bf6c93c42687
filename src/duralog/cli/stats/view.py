"""The figures of `duralog stats` as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural, size_text, write_table
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.statistics.report import Figures, LogFigures, StatsReport, key_text

_LEAST = ("no key", "unpacked", "contents", "first", "last", "tombstones", "duplicates", "ratio")
"""Columns that are left out on a narrow terminal, in this order."""


def write_stats(output: Output, report: StatsReport, path: str) -> None:
    """The figures in tables, damage first."""
    for partition in report.partitions:
        for damage in partition.damage:
            output.damage(damage)
    if output.quiet:
        return
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
    write_table(
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
        cut=("topic",),
        least=_LEAST,
    )


def _write_prefixes(output: Output, rows: Sequence[Figures]) -> None:
    names = (
        *("topic", "partition", "prefix", "records", "keys", "duplicates", "tombstones", "no key"),
        *("on disk", "contents", "ratio", "first", "last"),
    )
    write_table(
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
        cut=("topic", "prefix"),
        least=_LEAST,
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
    """Batch sizes are known only by topic, not by codec: with several codecs, a row for all of them comes first."""
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
    write_table(output, names, rows, right=names[2:])


def _write_largest(output: Output, topics: Sequence[LogFigures]) -> None:
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
    write_table(output, names, rows, right=names[1:4], cut=("topic", "key"))


def _time(timestamp_ms: int | None) -> str:
    return "-" if timestamp_ms is None else format_time(timestamp_ms)
