"""Which segments `retain` deleted, or would delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duralog.config import TopicConfig
from duralog.format.topic_partition import TopicPartition
from duralog.notebook.notebook_tables import retention_html
from duralog.storage.log.retention import Removal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REMOVALS_SCHEMA = (
    "topic string, partition int, base_offset bigint, end_offset bigint, size_bytes bigint, policy string,"
    " reason string"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainReport:
    path: str
    dry_run: bool
    removals: Sequence[Removal]
    """Segments that were or would be deleted: by topic and partition, oldest first."""
    configs: Mapping[TopicPartition, TopicConfig]
    """The configs in force for this run, of all partitions that were checked."""
    failures: Mapping[TopicPartition, str]
    """Partitions that could not be processed, and why."""
    seconds: float

    @property
    def is_well(self) -> bool:
        return not self.failures

    @property
    def size_bytes(self) -> int:
        return sum(removal.size_bytes for removal in self.removals)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "dry_run": self.dry_run,
            "partitions": len(self.configs),
            "segments": len(self.removals),
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "removals": [removal.to_dict() for removal in self.removals],
            "failures": {str(partition): failure for partition, failure in self.failures.items()},
        }

    def _repr_html_(self) -> str:
        return retention_html(self.removals, self.failures.items())

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each segment that was or would be deleted."""
        names = [column.split()[0] for column in REMOVALS_SCHEMA.split(",")]
        rows = [tuple(getattr(removal, name) for name in names) for removal in self.removals]
        return spark.createDataFrame(rows, REMOVALS_SCHEMA)
