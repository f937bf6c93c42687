"""What `duralog job compact` did: for each partition what the store reports of a compaction, and totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from duralog.format.topic_partition import TopicPartition
from duralog.storage.compaction.report import CompactionReport, partition_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_SCHEMA = (
    "topic string, partition int, form string, failure string, first_dirty_offset bigint, end_offset bigint,"
    " rounds int, records_before bigint, records_after bigint, bytes_before bigint, bytes_after bigint,"
    " segments_before bigint, segments_after bigint, superseded_records bigint, expired_tombstones bigint,"
    " kept_tombstones bigint, keyless_records bigint, aborted_records bigint, seconds double, notes array<string>,"
    " damage array<string>"
)


class CompactionForm(StrEnum):
    ONE_TASK = "one task"
    """The whole partition by one task, with a map of its keys."""
    SHUFFLED = "shuffled"
    """By many tasks: digests of keys are shuffled, and each group of segments is rewritten by one task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCompaction:
    """What became of one partition. Either there is a report, or a failure."""

    partition: TopicPartition
    form: CompactionForm
    report: CompactionReport | None = None
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As in `duralog compact --json`, and the form."""
        return partition_fields(self.partition, self.report, self.failure, form=self.form.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJobReport:
    path: str
    partitions: Sequence[PartitionCompaction]
    """By name."""
    seconds: float
    is_rehearsal: bool = False
    """Nothing was changed: this is what would have been done."""

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
        return not self.failures and not any(found.corrupt_batches or found.left_segments for found in self.reports)

    def totals(self) -> dict[str, int]:
        """Sums over all partitions."""
        done = [report for report in self.reports if report.rounds]
        names = (
            *("records_before", "records_after", "bytes_before", "bytes_after", "segments_before", "segments_after"),
            *("superseded_records", "expired_tombstones", "keyless_records", "aborted_records"),
        )
        sums = {name: sum(getattr(report, name) for report in done) for name in names}
        return {
            "compacted": len(done),
            "idle": len(self.reports) - len(done),
            "failed": len(self.failures),
            **sums,
            "freed_bytes": sums["bytes_before"] - sums["bytes_after"],
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "is_rehearsal": self.is_rehearsal,
            **self.totals(),
            "seconds": self.seconds,
            "per_partition": [found.to_dict() for found in self.partitions],
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition."""
        return spark.createDataFrame([_row(found) for found in self.partitions], PARTITIONS_SCHEMA)


def _row(found: PartitionCompaction) -> tuple[object, ...]:
    fields = found.to_dict()
    damage = [*fields.get("left_segments", ()), *fields.get("corrupt_batches", ())]
    names = [column.split()[0] for column in PARTITIONS_SCHEMA.split(",")]
    return tuple({**fields, "damage": damage}.get(name) for name in names)
