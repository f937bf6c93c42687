"""What `verify` found in a log directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duralog.errors import CorruptRecord
from duralog.format.filenames import PartitionFolder
from duralog.notebook.notebook_tables import verification_html
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import Verification, VerifiedTotals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS_SCHEMA = (
    "topic string, partition int, kind string, fault string, file string, position bigint,"
    " message string, expected string, found string"
)
PARTITIONS_SCHEMA = (
    "topic string, partition int, folder string, topic_id string, segments bigint, batches bigint, records bigint,"
    " compressed_messages bigint, bytes bigint, first_offset bigint, end_offset bigint, findings bigint, notes bigint"
)
"""The names of `duralog verify --json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    path: str
    partitions: Sequence[PartitionReport]
    errors: Sequence[CorruptRecord]
    """The directory's own findings."""
    notes: Sequence[Note]
    totals: VerifiedTotals
    tasks: int = 0
    """The number of Spark tasks; 0 on threads."""

    @classmethod
    def of(cls, verification: Verification, path: str, *, tasks: int = 0) -> VerifyReport:
        """REQUIRES: the verification has finished."""
        return cls(
            path=path,
            partitions=verification.reports,
            errors=verification.errors,
            notes=verification.notes,
            totals=verification.totals,
            tasks=tasks,
        )

    @property
    def is_sound(self) -> bool:
        return not self.totals.errors

    @property
    def all_errors(self) -> list[CorruptRecord]:
        """The findings of the partitions, then those of the directory."""
        return [error for report in self.partitions for error in report.errors] + [*self.errors]

    @property
    def all_notes(self) -> list[Note]:
        return [note for report in self.partitions for note in report.notes] + [*self.notes]

    def to_dict(self) -> dict[str, object]:
        return {
            "path": self.path,
            **self.totals.to_dict(),
            "tasks": self.tasks,
            "per_partition": [report.to_dict() for report in self.partitions],
            "errors": [error.to_dict() for error in self.all_errors],
            "notes": [note.to_dict() for note in self.all_notes],
        }

    def _repr_html_(self) -> str:
        return verification_html(self.path, self.partitions, self.totals.errors)

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each finding (`kind` is `error`) and each note (`note`); of each file, the first findings."""
        return spark.createDataFrame(list(self._finding_rows()), FINDINGS_SCHEMA)

    def partitions_frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition, with its counts and the number of findings."""
        names = [column.split()[0] for column in PARTITIONS_SCHEMA.split(",")]
        rows = [tuple(report.to_dict()[name] for name in names) for report in self.partitions]
        return spark.createDataFrame(rows, PARTITIONS_SCHEMA)

    def _finding_rows(self) -> Iterator[tuple[object, ...]]:
        for report in self.partitions:
            yield from _rows(report.partition, report.errors, report.notes)
        yield from _rows(None, self.errors, self.notes)


def _rows(
    folder: PartitionFolder | None, errors: Sequence[CorruptRecord], notes: Sequence[Note]
) -> Iterator[tuple[object, ...]]:
    topic, partition = (None, None) if folder is None else (folder.topic, folder.partition)
    for error in errors:
        expected, found = (None, None) if error.expected is None else (str(error.expected), str(error.found))
        yield (
            *(topic, partition, "error", error.fault.name, error.file, error.position),
            *(error.reason, expected, found),
        )
    for note in notes:
        yield topic, partition, "note", None, note.file, note.fields.get("position"), note.text, None, None
