"""A batch read: planned in a Python worker beside the driver, read by tasks.

PySpark refuses a reader that can take filters while `spark.sql.python.filterPushdown.enabled` is off, and does not tell
a source whether it is. But the worker in which it hands filters over is of another module than the one in which it
plans without them, and exists only if they are enabled. So the reader is chosen by the worker that asks for it.

What was planned (bytes, segments, slices) is logged there. With `spark.sql.pyspark.worker.logging.enabled` Spark
collects that: `select * from python_worker_logs()`. `duralog.spark.explain` tells the same without a query.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from duralog.spark.plain_errors import plain_errors
from duralog.spark.planned_read import plan_read
from duralog.spark.pushed_filters import PushedFilters
from duralog.spark.read_options import ReadOptions
from duralog.spark.spark_schema import Columns
from duralog.spark.task_reading import SliceTask, read_task

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def reader_of(schema: StructType, options: ReadOptions) -> DataSourceReader:
    # In a worker of Spark's, what is logged goes nowhere unless the user has it collected, and then the plan is of use.
    logging.getLogger("duralog.spark").setLevel(logging.INFO)
    kind = FilteringReader if _takes_filters() else DuralogReader
    return kind(Columns(schema, options), options)


class DuralogReader(DataSourceReader):
    """It is pickled into every task, so it holds no plan."""

    def __init__(self, columns: Columns, options: ReadOptions) -> None:
        self._columns = columns
        self._options = options
        self._filters: PushedFilters | None = None

    def partitions(self) -> list[InputPartition]:
        with plain_errors():
            return [SliceTask(slices) for slices in plan_read(self._options, self._filters).tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._columns, self._options)


class FilteringReader(DuralogReader):
    """Leaves out what the query's filters exclude."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._filters = PushedFilters()
        return self._filters.push(filters)


def _takes_filters() -> bool:
    """Whether this is the worker that Spark asks about filters."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER
