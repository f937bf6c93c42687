"""The rows of records that are known to be the latest of their keys, and how many they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from duralog.scanning.keyed_offsets import Numbers, rows_of_log
from duralog.scanning.slices import Slice
from duralog.schemas.payloads import count_left_out
from duralog.schemas.typed_columns import CORRUPT
from duralog.spark.jobs.snapshots.partition_task import PartitionTask
from duralog.spark.jobs.snapshots.unavailable_values import UnavailableValues
from duralog.spark.lake.change_rows import Unwrap
from duralog.spark.lake.keyed_files import rows_of_file


class LatestRows:
    """Reads the records with the wanted offsets, which are in order. Only these are decoded."""

    def __init__(self, task: PartitionTask, wanted: Numbers) -> None:
        self._task = task
        self._wanted = wanted
        self.records = 0
        """Records that were found."""
        self.rows = 0
        """Rows that were made of them: of a delete, there is none."""
        self.bad = 0
        self.corrupt = 0
        """As `bad`, of all rows, also those of the previous snapshot."""
        self.left_out: dict[str, int] = {}
        self.unavailable = 0

    def of_file(self, path: str) -> Iterator[pa.RecordBatch]:
        """Rows of the previous snapshot."""
        task = self._task
        for rows in rows_of_file(task.target, path, self._wanted, task.rows.schema):
            self.records += rows.num_rows
            self.rows += rows.num_rows
            if task.rows.has_corrupt:
                corrupt = rows.column(CORRUPT)
                self.corrupt += len(corrupt) - corrupt.null_count
            yield rows

    def of_log(self, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        if self._task.rows.unwrap is not Unwrap.STATE:
            yield from self._of_records(slices)
            return
        values = UnavailableValues(self._task)
        yield from values.filled(self._of_records(slices))
        self.unavailable += values.missing_rows

    def _of_records(self, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        to_rows = self._task.rows
        for records in rows_of_log(slices, self._wanted, to_rows.columns):
            rows, bad, left_out = to_rows.of(records)
            self.records += records.num_rows
            self.rows += rows.num_rows
            self.bad += bad
            self.corrupt += bad
            self.left_out = count_left_out((self.left_out, left_out))
            if rows.num_rows:
                yield rows
