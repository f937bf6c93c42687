"""A compaction in one line, with the figures that Kafka's cleaner logs."""

from __future__ import annotations

from duralog.config.plurals import plural
from duralog.storage.compaction.report import CompactionReport

_MB = 1 << 20


def summary(report: CompactionReport) -> str:
    rounds = "" if report.rounds == 1 else f" in {report.rounds} rounds"
    lines = [
        f"{report.topic}-{report.partition}: compacted up to offset {report.end_offset}, from"
        f" {report.first_dirty_offset}{rounds}",
        f"{_size(report.read_bytes)} read in {report.seconds:.1f} s ({_rate(report.read_bytes, report.seconds)})",
        f"{_size(report.map_bytes)} mapped in {_pace(report.map_bytes, report.map_seconds, report.seconds)}, the map"
        f" {report.map_fill:.1%} full",
        f"{_size(report.bytes_before)} rewritten in"
        f" {_pace(report.bytes_before, report.rewrite_seconds, report.seconds)}",
        f"before {_size(report.bytes_before)} and {plural(report.records_before, 'record')}, after"
        f" {_size(report.bytes_after)} and {report.records_after:,}",
        f"{_less(report.bytes_before, report.bytes_after)} smaller,"
        f" {_less(report.records_before, report.records_after)} fewer records",
    ]
    if report.keyless_records:
        lines.append(f"{plural(report.keyless_records, 'record')} without a key went")
    return "; ".join(lines)


def _pace(size_bytes: int, seconds: float, of_seconds: float) -> str:
    share = seconds / of_seconds if of_seconds else 0.0
    return f"{seconds:.1f} s ({_rate(size_bytes, seconds)}, {share:.1%} of the time)"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MB:,.1f} MB"


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{size_bytes / _MB / seconds:,.1f} MB/s" if seconds else "at once"


def _less(before: int, after: int) -> str:
    return f"{1 - after / before if before else 0.0:.1%}"
