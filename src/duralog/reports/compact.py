"""The report of `compact`: the store's report for each partition, and totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from duralog.config.byte_sizes import size_text
from duralog.config.plurals import plural
from duralog.format.topic_partition import TopicPartition
from duralog.notebook.html_tables import Block, captioned, strip_html
from duralog.storage.compaction.report import CompactionReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_SCHEMA = (
    "topic string, partition int, form string, failure string, first_dirty_offset bigint, end_offset bigint,"
    " rounds int, records_before bigint, records_after bigint, bytes_before bigint, bytes_after bigint,"
    " segments_before bigint, segments_after bigint, superseded_records bigint, expired_tombstones bigint,"
    " kept_tombstones bigint, keyless_records bigint, aborted_records bigint, seconds double, notes array<string>,"
    " damage array<string>"
)
_SUMS = (
    *("records_before", "records_after", "bytes_before", "bytes_after", "segments_before", "segments_after"),
    *("superseded_records", "expired_tombstones", "keyless_records", "aborted_records"),
)


class CompactionForm(StrEnum):
    ONE_TASK = "one task"
    """The whole partition by one task, with a map of its keys."""
    SHUFFLED = "shuffled"
    """By many tasks: digests of keys are shuffled, and each group of segments is rewritten by one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    size_bytes: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCompaction:
    """The result of one partition: either a report, or a failure."""

    partition: TopicPartition
    form: CompactionForm | None = None
    """How Spark compacted it; None for threads."""
    report: CompactionReport | None = None
    failure: str | None = None
    before: LogSize | None = None
    """The size of the whole log; on threads only."""
    after: LogSize | None = None

    @property
    def is_damaged(self) -> bool:
        return self.report is not None and bool(self.report.corrupt_batches or self.report.left_segments)

    def to_dict(self) -> dict[str, Any]:
        """As in `duralog compact --json`."""
        fields: dict[str, Any] = {
            "kind": "partition",
            "topic": self.partition.topic,
            "partition": self.partition.partition,
        }
        if self.report is not None:
            fields |= self.report.to_dict()
            fields["freed_bytes"] = self.report.bytes_before - self.report.bytes_after
        if self.form is not None:
            fields["form"] = self.form.value
        return {**fields, "failure": self.failure}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    path: str
    partitions: Sequence[PartitionCompaction]
    """By name."""
    seconds: float
    is_rehearsal: bool = False
    """Nothing was changed: this is what would have been done."""
    not_compacted: int | None = None
    """Chosen partitions of topics that are not compacted. Not counted by Spark."""

    @property
    def reports(self) -> list[CompactionReport]:
        """Of the partitions that did not fail."""
        return [found.report for found in self.partitions if found.report is not None]

    @property
    def failures(self) -> list[PartitionCompaction]:
        return [found for found in self.partitions if found.failure is not None]

    @property
    def is_well(self) -> bool:
        """Nothing failed, and no damage was found."""
        return not self.failures and not any(found.is_damaged for found in self.partitions)

    def totals(self) -> dict[str, int]:
        """Sums over all compacted partitions."""
        done = [report for report in self.reports if report.rounds]
        sums = {name: sum(getattr(report, name) for report in done) for name in _SUMS}
        return {
            "compacted": len(done),
            "idle": len(self.reports) - len(done),
            "failed": len(self.failures),
            "damaged": sum(found.is_damaged for found in self.partitions),
            **sums,
            "freed_bytes": sums["bytes_before"] - sums["bytes_after"],
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "is_rehearsal": self.is_rehearsal,
            **self.totals(),
            "seconds": round(self.seconds, 3),
            "per_partition": [found.to_dict() for found in self.partitions],
        }

    def _repr_html_(self) -> str:
        names = ("partition", "records", "left", "bytes", "left ", "freed", "")
        rows = [_shown(found) for found in self.partitions]
        totals = self.totals()
        before, freed = totals["bytes_before"], totals["freed_bytes"]
        done = "would be compacted" if self.is_rehearsal else "compacted"
        text = f"{plural(totals['compacted'], 'partition')} {done}, {size_text(freed)} of {size_text(before)} freed"
        picture = "".join(
            strip_html([Block(size, f"{when}: {size_text(size)}", colour)], of_size=before)
            for when, size, colour in (("before", before, "#9ecae9"), ("after", before - freed, "#4c78a8"))
            if size
        )
        return captioned(f"Compaction of {self.path}", text, names, rows, names[1:6], picture=picture)

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition."""
        return spark.createDataFrame([_row(found) for found in self.partitions], PARTITIONS_SCHEMA)


def _shown(found: PartitionCompaction) -> list[str]:
    report = found.report
    if report is None:
        return [str(found.partition), "", "", "", "", "", found.failure or ""]
    if not report.rounds:
        return [str(found.partition), "", "", "", "", "", "nothing to compact"]
    return [
        str(found.partition),
        f"{report.records_before:,}",
        f"{report.records_after:,}",
        size_text(report.bytes_before),
        size_text(report.bytes_after),
        size_text(report.bytes_before - report.bytes_after),
        "damaged" if found.is_damaged else "",
    ]


def _row(found: PartitionCompaction) -> tuple[object, ...]:
    fields = found.to_dict()
    damage = [*fields.get("left_segments", ()), *fields.get("corrupt_batches", ())]
    names = [column.split()[0] for column in PARTITIONS_SCHEMA.split(",")]
    return tuple({**fields, "damage": damage}.get(name) for name in names)
