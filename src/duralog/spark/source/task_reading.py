"""A Spark task of a read: yields the records of its slices as Arrow batches with the chosen columns.

It runs in a Python worker on an executor, which may run other tasks later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duralog.scanning.slices import Slice
from duralog.schemas.typed_columns import DecodedRecords, LeftOut
from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.hung_up import end_quietly_when_hung_up
from duralog.spark.plain_errors import plain_errors
from duralog.spark.source.corrupt_report import CorruptReport
from duralog.spark.source.planned_read import data_loss_handler
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.slice_records import read_records
from duralog.spark.source.spark_schema import CORRUPT, Columns

_SHOWN_PARTITIONS = 3


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
        report = None
        if options.reports:
            report = CorruptReport(options.bad_records, columns.decoded_types, partition.slices)
        left_out = LeftOut()

        def on_decoded(decoded: DecodedRecords) -> None:
            left_out.add(decoded.left_out)
            if report is not None:
                report.add_payloads(decoded)
            if options.bad_records is None and CORRUPT not in columns.names:
                left_out.add_bad(decoded)

        is_complete = False
        try:
            for found, records in read_records(
                options.logs,
                partition.slices,
                columns=columns.of_records,
                on_corrupt=report.add if report is not None and options.is_permissive else None,
                on_data_loss=data_loss_handler(options),
            ):
                if report is not None:
                    yield from report.take_rows(columns)
                yield columns.batch(records, found, on_decoded)
            if report is not None:
                yield from report.take_rows(columns)
            is_complete = True
        finally:
            # Also if Spark has enough rows before the end, as with a limit.
            sentence = left_out.sentence()
            left_out.log(_places(partition.slices))
            if report is not None:
                if sentence is not None:
                    report.add_left_out(sentence)
                report.write(is_complete=is_complete)


def _places(slices: Sequence[Slice]) -> str:
    """What a task reads, for the log."""
    ends: dict[str, tuple[int, int]] = {}
    for part in slices:
        name = f"{part.topic}-{part.partition}"
        ends[name] = (ends.get(name, (part.start_offset, 0))[0], part.end_offset - 1)
    shown = [f"{name} offsets {first} to {last}" for name, (first, last) in ends.items()]
    return ", ".join([*shown[:_SHOWN_PARTITIONS], *(["..."] if len(shown) > _SHOWN_PARTITIONS else [])])
