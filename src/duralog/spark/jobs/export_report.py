"""What a run of the export did, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTable:
    """What a run did to the table of one topic."""

    topic: str
    path: str
    format: str
    records: int
    undated_records: int
    """Without a timestamp, or with one outside of the calendar."""
    files: int
    read_bytes: int
    """Of the log."""
    written_bytes: int
    start_offsets: Mapping[int, int]
    end_offsets: Mapping[int, int]
    """By partition, exclusive: where the next run begins."""
    leftover_files: int
    """Of a run that died, removed."""
    bad_records: int = 0
    """With a key or value that does not decode."""
    left_out_fields: Mapping[str, int] = field(default_factory=dict)
    """Fields of JSON for which the table has no column, and how often the run met them: no sample had them."""
    findings: tuple[str, ...] = ()
    """How keys and values are decoded, in sentences for people."""
    column_changes: tuple[str, ...] = ()
    """New and wider columns of a table that was there before."""
    lost: tuple[str, ...] = ()
    """Offsets that were gone from the log before they could be exported."""
    healed: tuple[str, ...] = ()
    """Of a cluster: offsets that the copy that counts has not, or not without damage, and where they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    tables: tuple[ExportedTable, ...]
    seconds: float
    problems: tuple[str, ...] = ()
    """Of the directories of a cluster, in sentences for people."""

    @property
    def records(self) -> int:
        return sum(table.records for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "records": self.records}

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each table."""
        schema = (
            "topic string, path string, format string, records long, undated_records long, files long,"
            " read_bytes long, written_bytes long, start_offsets map<int, long>, end_offsets map<int, long>,"
            " leftover_files long, bad_records long, left_out_fields map<string, long>, findings array<string>,"
            " column_changes array<string>, lost array<string>, healed array<string>"
        )
        return spark.createDataFrame([asdict(table) for table in self.tables], schema)
