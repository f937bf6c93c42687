"""The report of `stats`: figures of topics, partitions and prefixes, as values, JSON and a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from duralog.config.byte_sizes import size_text
from duralog.format.topic_partition import TopicPartition
from duralog.notebook.html_tables import captioned, time_shown
from duralog.statistics.record_counts import LargeRecord, PrefixCounts, RecordCounts
from duralog.statistics.shapes import TopicShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a topic, a partition, or the keys with one prefix."""

    topic: str
    partition: int | None
    """None for a whole topic."""
    prefix: bytes | None
    """Of the keys; None for all, and for those without a key if `has_prefix`."""
    has_prefix: bool
    records: int
    distinct_keys: int
    """Of a topic: the sum of its partitions'."""
    duplicate_records: int
    tombstones: int
    keyless_records: int
    disk_bytes: int
    """Of a prefix: its share of them."""
    unpacked_bytes: int
    """Without compression. Of a prefix: of keys and values only."""
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None

    @property
    def compression_ratio(self) -> float | None:
        """How many times smaller the log is than its contents; of a prefix, its keys and values."""
        return self.unpacked_bytes / self.disk_bytes if self.disk_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSaving:
    """What a compaction of a partition would do now."""

    records: int
    """How many it would remove."""
    size_bytes: int
    """How much smaller the log would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFigures(Figures):
    """Of a topic or a partition: also what only batches have."""

    start_offset: int | None
    """None for a whole topic."""
    end_offset: int | None
    key_bytes: int
    value_bytes: int
    untimed_records: int
    batches: int
    control_batches: int
    smallest_batch_bytes: int | None
    largest_batch_bytes: int | None
    most_records_of_a_batch: int
    codecs: Mapping[str, Mapping[str, int]]
    """By name: batches, disk_bytes and unpacked_bytes."""
    largest_records: tuple[LargeRecord, ...]
    is_compacted: bool
    compaction: CompactionSaving | None
    """None if the topic is not compacted."""
    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsReport:
    topics: tuple[LogFigures, ...]
    partitions: tuple[LogFigures, ...]
    prefixes: tuple[Figures, ...]
    """By topic, partition and prefix; none if no prefixes were asked for."""
    read_bytes: int
    seconds: float
    shapes: Mapping[str, TopicShape] = field(default_factory=dict)
    """By topic: what charts are drawn from, if they are wanted."""

    @property
    def is_sound(self) -> bool:
        return not any(found.damage for found in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: keys and prefixes as text where they are UTF-8, otherwise in hex with `0x` before."""
        return {
            "topics": [figures_dict(found) for found in self.topics],
            "partitions": [figures_dict(found) for found in self.partitions],
            "prefixes": [figures_dict(found) for found in self.prefixes],
            "read_bytes": self.read_bytes,
            "seconds": self.seconds,
        }

    def _repr_html_(self) -> str:
        names = (
            "topic",
            "partitions",
            "records",
            "keys",
            "duplicates",
            "tombstones",
            "on disk",
            "ratio",
            "first",
            "last",
        )
        rows = [
            (
                topic.topic,
                f"{sum(found.topic == topic.topic for found in self.partitions):,}",
                f"{topic.records:,}",
                f"{topic.distinct_keys:,}",
                f"{topic.duplicate_records:,}",
                f"{topic.tombstones:,}",
                size_text(topic.disk_bytes),
                "-" if topic.compression_ratio is None else f"{topic.compression_ratio:.2f}",
                time_shown(topic.first_timestamp_ms),
                time_shown(topic.last_timestamp_ms),
            )
            for topic in self.topics
        ]
        text = f"{size_text(self.read_bytes)} read in {self.seconds:.1f} s"
        return captioned("What is in the topics", text, names, rows, names[1:8])

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each topic, partition and prefix."""
        found: list[Figures] = [*self.topics, *self.partitions, *self.prefixes]
        return spark.createDataFrame([_row(figures) for figures in found], _FRAME_SCHEMA)


def log_figures(
    *,
    topic: str,
    partition: int | None,
    offsets: tuple[int, int] | None,
    counts: RecordCounts,
    distinct: int,
    is_compacted: bool,
    saving: CompactionSaving | None,
) -> LogFigures:
    return LogFigures(
        topic=topic,
        partition=partition,
        prefix=None,
        has_prefix=False,
        records=counts.records,
        distinct_keys=distinct,
        duplicate_records=counts.records - counts.keyless_records - distinct,
        tombstones=counts.tombstones,
        keyless_records=counts.keyless_records,
        disk_bytes=counts.disk_bytes,
        unpacked_bytes=counts.unpacked_bytes,
        first_timestamp_ms=counts.times.first_ms,
        last_timestamp_ms=counts.times.last_ms,
        start_offset=None if offsets is None else offsets[0],
        end_offset=None if offsets is None else offsets[1],
        key_bytes=counts.key_bytes,
        value_bytes=counts.value_bytes,
        untimed_records=counts.untimed_records,
        batches=counts.batches,
        control_batches=counts.control_batches,
        smallest_batch_bytes=counts.smallest_batch_bytes,
        largest_batch_bytes=counts.largest_batch_bytes,
        most_records_of_a_batch=counts.most_records_of_a_batch,
        codecs={name: asdict(of_codec) for name, of_codec in sorted(counts.codecs.items())},
        largest_records=tuple(counts.largest),
        is_compacted=is_compacted,
        compaction=saving,
        damage=tuple(counts.damage),
    )


def topic_figures(
    topic: str, rows: Sequence[LogFigures], counts: Mapping[TopicPartition, RecordCounts], largest: int
) -> LogFigures:
    of_topic = [row for row in rows if row.topic == topic]
    total = RecordCounts()
    for partition, found in counts.items():
        if partition.topic == topic:
            total.add(found, largest)
    savings = [row.compaction for row in of_topic if row.compaction is not None]
    saving = None
    if savings:
        saving = CompactionSaving(
            records=sum(found.records for found in savings), size_bytes=sum(found.size_bytes for found in savings)
        )
    return log_figures(
        topic=topic,
        partition=None,
        offsets=None,
        counts=total,
        distinct=sum(row.distinct_keys for row in of_topic),
        is_compacted=of_topic[0].is_compacted,
        saving=saving,
    )


def prefix_figures(partition: TopicPartition, prefix: bytes | None, counts: PrefixCounts, distinct: int) -> Figures:
    keyless = counts.records if prefix is None else 0
    return Figures(
        topic=partition.topic,
        partition=partition.partition,
        prefix=prefix,
        has_prefix=True,
        records=counts.records,
        distinct_keys=distinct,
        duplicate_records=counts.records - keyless - distinct,
        tombstones=counts.tombstones,
        keyless_records=keyless,
        disk_bytes=round(counts.disk_bytes),
        unpacked_bytes=counts.content_bytes,
        first_timestamp_ms=counts.times.first_ms,
        last_timestamp_ms=counts.times.last_ms,
    )


def figures_dict(figures: Figures) -> dict[str, Any]:
    fields = {**asdict(figures), "compression_ratio": figures.compression_ratio, "prefix": key_text(figures.prefix)}
    if isinstance(figures, LogFigures):
        fields["largest_records"] = [
            {**record._asdict(), "key": key_text(record.key)} for record in figures.largest_records
        ]
    return fields


def key_text(key: bytes | None) -> str | None:
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() and not text.startswith("0x") else f"0x{key.hex()}"


_FRAME_SCHEMA = (
    "topic string, partition int, prefix binary, has_prefix boolean, records long, distinct_keys long,"
    " duplicate_records long, tombstones long, keyless_records long, disk_bytes long, unpacked_bytes long,"
    " compression_ratio double, first_timestamp_ms long, last_timestamp_ms long, start_offset long, end_offset long,"
    " key_bytes long, value_bytes long, untimed_records long, batches long, control_batches long,"
    " smallest_batch_bytes long, largest_batch_bytes long, most_records_of_a_batch long,"
    " codecs map<string, map<string, long>>,"
    " largest_records array<struct<size_bytes: long, partition: int, offset: long, timestamp_ms: long, key: binary>>,"
    " is_compacted boolean, compaction struct<records: long, size_bytes: long>, damage array<string>"
)


def _row(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "compression_ratio": figures.compression_ratio}
