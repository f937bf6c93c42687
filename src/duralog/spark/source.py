"""`format("duralog")` for Spark: batch and streaming reads, batch and streaming writes.

A user of Spark's Kafka connector changes the format and gives a path. The schema, the options and their meaning are the
connector's; `read_options` and `write_options` have them.

Spark makes this object in a Python worker and pickles it into others, one for each step of a query. So it holds nothing
but the options, and loads what a step needs when it comes to it: the driver itself needs none of it.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from duralog.errors import DuralogError
from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.plain_errors import plain_errors


class DuralogDataSource(DataSource):
    """What `format("duralog")` stands for."""

    @classmethod
    def name(cls) -> str:
        return "duralog"

    def schema(self) -> StructType:
        from duralog.spark.read_options import ReadOptions
        from duralog.spark.spark_schema import schema_of

        freeze_imports()
        with plain_errors():
            return schema_of(ReadOptions.of(self.options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        from duralog.spark.batch_read import reader_of
        from duralog.spark.read_options import ReadOptions

        freeze_imports()
        with plain_errors():
            return reader_of(schema, ReadOptions.of(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from duralog.spark.read_options import ReadOptions
        from duralog.spark.refused_stream import RefusedStreamReader
        from duralog.spark.stream import DuralogStreamReader

        try:
            return DuralogStreamReader(schema, ReadOptions.of(self.options, streaming=True))
        except DuralogError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from duralog.spark.sink import DuralogArrowWriter

        with plain_errors():
            return DuralogArrowWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        from duralog.spark.sink import DuralogStreamArrowWriter

        with plain_errors():
            return DuralogStreamArrowWriter(schema, self.options, overwrite)
