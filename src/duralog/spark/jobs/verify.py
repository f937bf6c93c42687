"""`verify`: a whole directory checked by all cores of a cluster. Reads everything, changes nothing.

The driver lists the folders and reads small files. Tasks read the logs, in independent chains of segments
(`duralog.storage.checks.chain`): a large partition is spread over many tasks, and small ones share one. The driver
merges the results as `duralog verify` does, so the findings are the same.

A partition without any producer snapshot is one chain, and one task: its batches can be checked only in order.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from duralog.errors import CorruptRecord
from duralog.format.filenames import PartitionFolder
from duralog.scanning.executor import Advance, OnProgress, in_groups
from duralog.scanning.locations import Location
from duralog.scanning.remote_checks import files_at
from duralog.spark.executor import SparkExecutor
from duralog.storage.checks.chain import Checked
from duralog.storage.checks.findings import Note
from duralog.storage.checks.partition import PartitionReport
from duralog.storage.checks.verification import DEFAULT_THREADS, ChainWork, Verification, VerifiedTotals

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

_REMOTE_THREADS = 32
"""How many partitions of an object store are listed at a time: nearly all of it is waiting for responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    path: str
    partitions: Sequence[PartitionReport]
    errors: Sequence[CorruptRecord]
    """The directory's own findings."""
    notes: Sequence[Note]
    totals: VerifiedTotals
    tasks: int

    @property
    def is_sound(self) -> bool:
        return not self.totals.errors

    def to_dict(self) -> dict[str, object]:
        return {
            "path": self.path,
            **self.totals.to_dict(),
            "tasks": self.tasks,
            "per_partition": [report.to_dict() for report in self.partitions],
            "errors": [error.to_dict() for report in self.partitions for error in report.errors]
            + [error.to_dict() for error in self.errors],
            "notes": [note.to_dict() for report in self.partitions for note in report.notes]
            + [note.to_dict() for note in self.notes],
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """A row for each finding (`kind` is `error`) and each note (`note`); of each file, the first findings."""
        return spark.createDataFrame(list(self._finding_rows()), FINDINGS_SCHEMA)

    def partitions_frame(self, spark: SparkSession) -> DataFrame:
        """A row for each partition: how much there is of it, and how much is wrong."""
        names = [column.split()[0] for column in PARTITIONS_SCHEMA.split(",")]
        rows = [tuple(report.to_dict()[name] for name in names) for report in self.partitions]
        return spark.createDataFrame(rows, PARTITIONS_SCHEMA)

    def _finding_rows(self) -> Iterator[tuple[object, ...]]:
        for report in self.partitions:
            yield from _rows(report.partition, report.errors, report.notes)
        yield from _rows(None, self.errors, self.notes)


def verify(  # Public: its keyword arguments are the interface.
    spark: SparkSession,
    path: str,
    *,
    topics: Collection[str] | None = None,
    partition: int | None = None,
    deep: bool = False,
    interval_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
) -> VerifyReport:
    """Check a log directory, or one partition's folder, on a disk or an object store; see `duralog verify`.

    With `deep`, every record is decoded. With `interval_bytes`, indexes must match that interval exactly.
    """
    started = time.monotonic()
    location = Location.of(path, storage_options)
    verification = Verification(
        location.url,
        topics=topics,
        partition=partition,
        interval_bytes=interval_bytes,
        decode=deep,
        threads=_REMOTE_THREADS if location.is_remote else DEFAULT_THREADS,
        source=files_at(location),
    )
    work = verification.work()
    executor = SparkExecutor(spark, on_progress)
    groups = in_groups(executor, work, lambda chain: chain.size_bytes)
    checked = executor.run(
        groups,
        partial(_check, location),
        weight=lambda group: sum(chain.size_bytes for chain in group),
        name="verify",
    )
    reports = list(verification.conclude(result for group in checked for result in group))
    verification.totals.seconds = time.monotonic() - started
    return VerifyReport(
        path=path,
        partitions=reports,
        errors=verification.errors,
        notes=verification.notes,
        totals=verification.totals,
        tasks=len(groups),
    )


def _check(location: Location, group: Sequence[ChainWork], advance: Advance) -> list[Checked]:
    source = files_at(location)
    return [work.check(advance, source) for work in group]


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
