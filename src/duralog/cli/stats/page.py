"""The figures of `duralog stats` as one page with charts: what `--html` writes.

The size of the page is bounded for any directory: it has a chapter for each of the largest topics, with the largest
partitions, and merges neighbouring segments. Tables have the first rows and the number of the others. Names and keys
come from a disk: they are made printable here, and escaped by `html_report` and `svg_charts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from duralog.cli.stats.charts import (
    codec_section,
    compaction_section,
    hot_key_section,
    popularity_section,
    present,
    size_section,
    time_section,
    topic_size_section,
)
from duralog.cli.stats.html_report import Chapter, Section, Table, Tile, page
from duralog.cli.voice.tables import plural, size_text
from duralog.config.error_text import printable
from duralog.config.times import format_time
from duralog.statistics.record_shapes import TimeCounts
from duralog.statistics.report import LogFigures, StatsReport
from duralog.statistics.shapes import TopicShape

_MOST_TOPICS = 10
_MOST_ROWS = 200
_MOST_DAMAGE = 50


def stats_page(report: StatsReport, path: str, made_ms: int) -> str:
    """REQUIRES: the report was made with hot keys, so that it has shapes."""
    by_size = sorted((topic for topic in report.topics if topic.batches), key=lambda topic: -topic.disk_bytes)
    parts: list[Section | Chapter] = [*_damage(report)]
    if len(report.topics) > 1:
        parts.append(topic_size_section(by_size, report.shapes))
        parts.append(_all_topics(report))
        times = TimeCounts()
        for shape in report.shapes.values():
            times.add(shape.records.times)
        parts += present([time_section(times, "Records over time, all topics")])
    for topic in by_size[:_MOST_TOPICS]:
        of_topic = [found for found in report.partitions if found.topic == topic.topic]
        parts.append(_chapter(topic, of_topic, report.shapes[topic.topic]))
    left = len(by_size) - _MOST_TOPICS
    more = (
        f" {plural(left, 'smaller topic')} {'has' if left == 1 else 'have'} no charts here: name one with --topic."
        if left > 0
        else ""
    )
    empty = len(report.topics) - len(by_size)
    if empty:
        more += f" {plural(empty, 'topic')} {'is' if empty == 1 else 'are'} empty."
    return page(
        f"What is in {printable(path)}",
        f"Counted by duralog stats on {format_time(made_ms)[:19].replace('T', ' ')} UTC, every record and every key."
        " Times are in UTC.",
        _tiles(report),
        parts,
        f"{size_text(report.read_bytes)} of {plural(len(report.partitions), 'partition')} read in"
        f" {report.seconds:.1f} s.{more}",
    )


def _tiles(report: StatsReport) -> list[Tile]:
    topics = report.topics
    disk_bytes, unpacked_bytes = _sum(topics, "disk_bytes"), _sum(topics, "unpacked_bytes")
    tiles = [
        Tile("Topics", f"{len(topics):,}", plural(len(report.partitions), "partition")),
        Tile("Records", f"{_sum(topics, 'records'):,}", f"{_sum(topics, 'tombstones'):,} of them tombstones"),
        Tile("Keys", f"{_sum(topics, 'distinct_keys'):,}", plural(_sum(topics, "duplicate_records"), "repeat")),
        Tile("On disk", size_text(disk_bytes), f"{size_text(unpacked_bytes)} unpacked"),
    ]
    savings = [topic.compaction for topic in topics if topic.compaction is not None]
    if savings:
        freed = sum(saving.size_bytes for saving in savings)
        tiles.append(Tile("Compaction", size_text(freed), "would be freed now"))
    return tiles


def _sum(topics: Sequence[LogFigures], name: str) -> int:
    return sum(getattr(topic, name) for topic in topics)


def _damage(report: StatsReport) -> list[Section]:
    found = [(partition, text) for partition in report.partitions for text in partition.damage]
    if not found:
        return []
    rows = [(f"{printable(partition.topic)}-{partition.partition}", printable(text)) for partition, text in found]
    first = f" These are the first {_MOST_DAMAGE}." if len(rows) > _MOST_DAMAGE else ""
    return [
        Section(
            f"Damage: {plural(len(rows), 'place')}",
            f"It is not counted below.{first} duralog repair --dry-run shows what can be done.",
            table=Table(("partition", "what"), rows[:_MOST_DAMAGE]),
            table_is_open=True,
        )
    ]


def _all_topics(report: StatsReport) -> Section:
    names = (
        "topic",
        "partitions",
        "records",
        "keys",
        "on disk",
        "unpacked",
        "ratio",
        "first",
        "last",
        "compaction saves",
    )
    partitions: dict[str, int] = {}
    for partition in report.partitions:
        partitions[partition.topic] = partitions.get(partition.topic, 0) + 1
    topics = sorted(report.topics, key=lambda topic: (-topic.disk_bytes, topic.topic))
    rows = [(printable(topic.topic), f"{partitions[topic.topic]:,}", *_cells(topic)) for topic in topics[:_MOST_ROWS]]
    text = f"The {_MOST_ROWS} largest of {len(topics):,}." if len(topics) > _MOST_ROWS else ""
    return Section("All topics", text, table=Table(names, rows, names[1:7]), table_is_open=len(rows) <= 30)


def _cells(row: LogFigures) -> tuple[str, ...]:
    ratio = row.compression_ratio
    return (
        f"{row.records:,}",
        f"{row.distinct_keys:,}",
        size_text(row.disk_bytes),
        size_text(row.unpacked_bytes),
        "-" if ratio is None else f"{ratio:.2f}",
        *(
            "-" if time_ms is None else format_time(time_ms)[:16].replace("T", " ")
            for time_ms in (row.first_timestamp_ms, row.last_timestamp_ms)
        ),
        "-" if row.compaction is None else f"{row.compaction.records:,}, {size_text(row.compaction.size_bytes)}",
    )


def _chapter(topic: LogFigures, partitions: Sequence[LogFigures], shape: TopicShape) -> Chapter:
    names = (
        "partition",
        "offsets",
        "records",
        "keys",
        "on disk",
        "unpacked",
        "ratio",
        "first",
        "last",
        "compaction saves",
    )
    largest = sorted(partitions, key=lambda found: -found.disk_bytes)[:_MOST_ROWS]
    rows = [
        (str(found.partition), f"{found.start_offset:,} to {found.end_offset:,}", *_cells(found))
        for found in sorted(largest, key=lambda found: found.partition or 0)
    ]
    policy = "compacted" if topic.is_compacted else "not compacted"
    ratio = topic.compression_ratio
    return Chapter(
        printable(topic.topic),
        f"{plural(len(partitions), 'partition')}, {plural(topic.records, 'record')} in"
        f" {plural(topic.batches, 'batch')}, {size_text(topic.disk_bytes)}"
        + ("" if ratio is None else f", {ratio:.2f} times smaller than unpacked")
        + f"; {policy}.",
        present(
            [
                size_section(shape.partitions, Table(names, rows, (*names[:1], *names[2:7]))),
                time_section(shape.records.times, "Records over time"),
                popularity_section(topic, shape.popularity),
                hot_key_section(topic, shape.hot_keys),
                codec_section(topic, shape.records),
                compaction_section(topic, partitions),
            ]
        ),
    )
