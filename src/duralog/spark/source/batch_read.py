"""A batch read: planned in a Python worker of the driver, read by tasks.

Spark 4.3 keeps one planned read for each `load()`. With `spark.sql.python.filterPushdown.enabled`, a query with filters
replaces it, and a query without filters takes what is there. So a plan that leaves out what one query does not want is
wrong for the next query. By default every plan has all offsets of the frame's snapshot, with or without filters. With
the option `pruneByFilters` a plan is narrowed: for a load that one query uses, once. All filters are returned in both
cases, and Spark applies them to the rows.

PySpark refuses a reader that overrides `pushFilters` while the setting is off, and does not say whether it is. But the
worker to which it passes filters runs another module than the one that plans without them, and exists only if the
setting is on.

What was planned (bytes, segments, slices) is logged there. With `spark.sql.pyspark.worker.logging.enabled` Spark
collects that: `select * from python_worker_logs()`. `duralog.spark.explain` returns the same without a query.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from duralog.errors import OffsetOutOfRange
from duralog.spark.option_text import InvalidOption
from duralog.spark.plain_errors import hide_traceback, plain_errors, show_traceback
from duralog.spark.source.far_times import accept_far_times, refuse_far_times
from duralog.spark.source.frame_snapshot import FrameSnapshot
from duralog.spark.source.planned_read import plan_read
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns
from duralog.spark.source.task_reading import SliceTask, read_task
from duralog.spark.spark_versions import HAS_FILTERS, needs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from duralog.schemas.typed_columns import TypedColumns
    from duralog.spark.source.pushed_filters import PushedFilters

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def reader_of(
    schema: StructType, options: ReadOptions, snapshot: FrameSnapshot | None, typed: TypedColumns | None = None
) -> DataSourceReader:
    # In a worker of Spark, log lines are dropped unless the user lets Spark collect them; then the plan is useful.
    logging.getLogger("duralog.spark").setLevel(logging.INFO)
    columns = Columns(schema, options, typed)
    if options.prune_by_filters:
        if not HAS_FILTERS:
            raise InvalidOption(needs("4.1", "option pruneByFilters", "gives a source none of the filters"))
        kind: type[DuralogReader] = PruneByFiltersReader
    else:
        kind = FilteredReader if is_pushing_worker() else DuralogReader
    if is_pushing_worker():
        accept_far_times()
    elif options.prune_by_filters:
        hide_traceback()
    return kind(columns, options, snapshot)


class DuralogReader(DataSourceReader):
    """Pickled into every task, without what only planning needs."""

    def __init__(self, columns: Columns, options: ReadOptions, snapshot: FrameSnapshot | None = None) -> None:
        self._columns = columns
        self._options = options
        self._snapshot = snapshot
        self._filters: PushedFilters | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_snapshot": None, "_filters": None}

    def partitions(self) -> list[InputPartition]:
        with plain_errors(), _advising_to_load_again():
            return [SliceTask(slices) for slices in plan_read(self._options, self._snapshot, self._filters).tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plain_errors(), _advising_to_load_again():
            yield from read_task(partition, self._columns, self._options)


class FilteredReader(DuralogReader):
    """For the worker to which PySpark passes filters. It uses none of them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        refuse_far_times()
        return filters


class PruneByFiltersReader(FilteredReader):
    """Plans only what the filters may want. PySpark's error names this class if the setting is off, hence its name."""

    def partitions(self) -> list[InputPartition]:
        show_traceback()
        return super().partitions()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        from duralog.spark.source.pushed_filters import PushedFilters

        self._filters = PushedFilters.of(filters)
        return super().pushFilters(filters)


def is_pushing_worker() -> bool:
    """Whether PySpark will decode the filters of a query in this process, and pass them on."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or getattr(main, "name", None) == _PUSHING_WORKER


@contextmanager
def _advising_to_load_again() -> Iterator[None]:
    """Around what reads a snapshot."""
    try:
        yield
    except OffsetOutOfRange as error:
        raise OffsetOutOfRange(
            f"{error}; a frame has the records that were there when it was loaded: load it again to read the current"
            " ones, or set failOnDataLoss to false to continue without the missing ones"
        ) from None
