"""The report of `snapshot`: of each topic, what its table holds now and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable:
    """The snapshot of one topic."""

    topic: str
    path: str
    """What to open."""
    format: str
    live_keys: int
    """Rows of the table."""
    deleted_keys: int
    """Keys whose last record is a tombstone, among what this run read."""
    keyless_records: int
    """Among what this run read of the log."""
    records_read: int
    read_bytes: int
    """Of the log."""
    files: int
    """Written by this run."""
    written_bytes: int
    removed_files: int
    is_incremental: bool
    why_full: str | None
    start_offsets: Mapping[int, int]
    """From where this run read each partition."""
    end_offsets: Mapping[int, int]
    """The snapshot is of the records before these."""
    shuffled_partitions: tuple[int, ...]
    """Those whose keys did not fit into the memory of one task."""
    bad_records: int = 0
    """Among the rows that this run wrote: with a key or value that does not decode."""
    corrupt_rows: int = 0
    """Rows of the table in whose `_corrupt` such a key or value is, also those of earlier runs: they stay until their
    key changes, or a full run."""
    expired_rows: int = 0
    """Rows of the last snapshot that are not in this one, as retention has removed their records."""
    left_out_fields: Mapping[str, int] = field(default_factory=dict)
    """Fields of JSON for which the table has no column, and how often this run met them: no sample had them."""
    unavailable_rows: int = 0
    """Among the rows that this run wrote: with a value that the database left out, and that the log has not either."""
    findings: tuple[str, ...] = ()
    """How keys and values are decoded, in sentences for people."""
    column_changes: tuple[str, ...] = ()
    """New and wider columns of a table that was there before."""
    healed: tuple[str, ...] = ()
    """Of a cluster: offsets that the copy that counts has not, or not without damage, and where they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    tables: tuple[SnapshotTable, ...]
    seconds: float
    problems: tuple[str, ...] = ()
    """Of the directories of a cluster, in sentences for people."""

    @property
    def live_keys(self) -> int:
        return sum(table.live_keys for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "live_keys": self.live_keys}

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each table."""
        schema = (
            "topic string, path string, format string, live_keys long, deleted_keys long, keyless_records long,"
            " records_read long, read_bytes long, files long, written_bytes long, removed_files long,"
            " is_incremental boolean, why_full string, start_offsets map<int, long>, end_offsets map<int, long>,"
            " shuffled_partitions array<int>, bad_records long, corrupt_rows long, expired_rows long,"
            " left_out_fields map<string, long>, unavailable_rows long, findings array<string>,"
            " column_changes array<string>, healed array<string>"
        )
        return spark.createDataFrame([asdict(table) for table in self.tables], schema)
