"""What a task of a snapshot gets, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duralog.scanning.slices import Slice
from duralog.spark.lake.parquet_files import DataFile
from duralog.spark.lake.table_rows import TableRows
from duralog.spark.lake.targets import LakeTarget
from duralog.spark.lake.writing_right import WritingRight


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """What the snapshot of one partition is made of."""

    topic: str
    partition: int
    slices: tuple[Slice, ...]
    """Of the log, from where the previous snapshot ended."""
    files: tuple[str, ...]
    """Of the previous snapshot."""
    first_offset: int
    """Where the log begins now: rows of the previous snapshot from before are gone from it."""
    previous_end: int
    """Where the previous snapshot ended."""
    most_keys: int
    """There cannot be more."""
    map_bytes: int
    right: WritingRight
    target: LakeTarget
    folder: str
    rows: TableRows
    column: str
    """By which the table is partitioned."""
    is_only: bool
    """Whether the topic has no other partition."""
    truncated_offset: int = -1
    """Of the last event that is known to have emptied the table."""
    stem: str
    copies: bool
    """Whether files that stay have to be in the folder of this run, too."""

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    partition: int
    added: list[DataFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    live_keys: int = 0
    deleted_keys: int = 0
    """Keys whose last record is a tombstone."""
    records_read: int = 0
    """Of the log."""
    keyless_records: int = 0
    bad_records: int = 0
    """Among the rows that were written: with a key or value that does not decode."""
    corrupt_rows: int = 0
    """The same among all rows, also those of earlier runs."""
    expired_rows: int = 0
    """Rows of the previous snapshot whose records are gone from the log."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Fields of JSON for which the table has no column, and how often they were in what was written."""
    unavailable_rows: int = 0
    """Among the rows that were written: with a value that the database left out, and that the log has not either."""
    is_too_large: bool = False
