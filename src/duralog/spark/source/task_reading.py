"""A Spark task of a read: yields the records of its slices as Arrow batches with the chosen columns.

Slices of a cluster are read through damage: what the chosen copy does not have comes from another one, and is logged.

It runs in a Python worker on an executor, which may run other tasks later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duralog.scanning.cluster.healing import read_copies
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.hung_up import end_quietly_when_hung_up
from duralog.spark.plain_errors import plain_errors
from duralog.spark.source.corrupt_report import CorruptReport
from duralog.spark.source.planned_read import data_loss_handler
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns

_logger = logging.getLogger(__name__)


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
            for found, records in _read(partition.slices, columns, options, report):
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


def _read(
    slices: tuple[Slice, ...], columns: Columns, options: ReadOptions, report: CorruptReport | None
) -> Iterator[tuple[Slice | None, pa.RecordBatch]]:
    """The records, and those of a cluster with the slice that they come from."""
    on_corrupt = None if report is None else report.add
    on_data_loss = data_loss_handler(options)
    names = columns.of_records
    if not options.logs.is_cluster:
        for records in read_slices(slices, columns=names, on_corrupt=on_corrupt, on_data_loss=on_data_loss):
            yield None, records
        return
    yield from read_copies(
        slices, columns=names, on_healed=_log_healed, on_corrupt=on_corrupt, on_data_loss=on_data_loss
    )


def _log_healed(found: HealedRange) -> None:
    _logger.warning("%s", found)
