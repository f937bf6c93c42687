"""A Spark task of a read: yields the records of its slices as Arrow batches with the chosen columns.

It runs in a Python worker on an executor, which may run other tasks later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duralog.scanning.slices import Slice
from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.hung_up import end_quietly_when_hung_up
from duralog.spark.plain_errors import plain_errors
from duralog.spark.source.corrupt_report import CorruptReport
from duralog.spark.source.planned_read import data_loss_handler
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.slice_records import read_records
from duralog.spark.source.spark_schema import Columns


@dataclass(frozen=True, slots=True)
class SliceTask(InputPartition):
    slices: tuple[Slice, ...]


def read_task(partition: InputPartition, columns: Columns, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a task. If there is nothing to read, Spark passes a partition that is not ours."""
    if not isinstance(partition, SliceTask):
        return
    freeze_imports()
    end_quietly_when_hung_up()
    with plain_errors():
        report = CorruptReport(options.bad_records, columns.decoded_types) if options.is_permissive else None
        is_complete = False
        try:
            for found, records in read_records(
                options.logs,
                partition.slices,
                columns=columns.of_records,
                on_corrupt=None if report is None else report.add,
                on_data_loss=data_loss_handler(options),
            ):
                if report is not None:
                    yield from report.take_rows(columns)
                yield columns.batch(records, found, None if report is None else report.add_payloads)
            if report is not None:
                yield from report.take_rows(columns)
            is_complete = True
        finally:
            # Also if Spark has enough rows before the end, as with a limit.
            if report is not None:
                report.write(partition.slices, is_complete=is_complete)
