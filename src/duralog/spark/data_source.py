"""`format("duralog")` for Spark: batch and streaming reads, batch and streaming writes.

A user of Spark's Kafka connector changes the format and gives a path. The schema, the options and their meaning are the
connector's; `read_options` and `write_options` have them.

Spark makes this object in a Python worker, pickles it right away, and unpickles it in others, one for each step of a
query. So it holds nothing but the options and a batch read's snapshot, and loads what a step needs when it comes to it:
the driver itself needs none of it.

The first pickling is the one moment of a read that is the same for all its queries: `load()`, or `CREATE TEMPORARY
VIEW`. If the user gives a schema, Spark does not need the object until the first query is planned. Then the offsets of
the frame are found; see `frame_snapshot`. Whether the read is a stream is not known then. A stream has no use for the
snapshot, so an error is kept until a batch read asks for it. Writes are not pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from duralog.errors import CorruptRecord, DuralogError, StorageError, UnknownTopic, arrow_needed
from duralog.spark.frozen_imports import freeze_imports
from duralog.spark.hung_up import end_quietly_when_hung_up
from duralog.spark.plain_errors import plain_errors
from duralog.spark.spark_versions import DataSourceStreamArrowWriter, datasource

if TYPE_CHECKING:
    from duralog.schemas.typed_columns import TypedColumns
    from duralog.spark.source.frame_snapshot import FrameSnapshot
    from duralog.spark.source.read_options import ReadOptions

_OF_THE_LOGS = (StorageError, CorruptRecord, UnknownTopic)
"""Errors that may go away without a change of the query. With other options, a user loads again anyway."""


class DuralogDataSource(datasource.DataSource):
    """What `format("duralog")` stands for."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_new = True
        """Neither pickled nor used yet."""
        self._snapshot: FrameSnapshot | DuralogError | None = None
        self._typed: TypedColumns | None = None
        """How payloads are decoded: since the schema was asked for, if they are."""

    @classmethod
    def name(cls) -> str:
        return "duralog"

    def __getstate__(self) -> dict[str, object]:
        if self._is_new:
            self._is_new = False
            self._snapshot = self._take_snapshot()
        return self.__dict__

    def schema(self) -> StructType:
        with plain_errors(), arrow_needed():
            from duralog.spark.source.read_options import ReadOptions
            from duralog.spark.source.spark_schema import schema_of

        freeze_imports()
        end_quietly_when_hung_up()
        with plain_errors():
            options = ReadOptions.of(self.options, streaming=None)
            self._typed = self._plan_typed(options)
            return schema_of(options, self._typed)

    def _plan_typed(self, options: ReadOptions) -> TypedColumns | None:
        if options.decode is None or self._typed is not None:
            return self._typed
        from duralog.spark.source.typed_read import plan_typed_read

        return plan_typed_read(options)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        from duralog.spark.source.batch_read import reader_of
        from duralog.spark.source.read_options import ReadOptions

        freeze_imports()
        end_quietly_when_hung_up()
        snapshot = self._hand_over_snapshot()
        with plain_errors():
            options = ReadOptions.of(self.options, streaming=False)
            if isinstance(snapshot, _OF_THE_LOGS):
                raise DuralogError(
                    f"{snapshot}; this was found when the frame was loaded: load again when the cause is removed"
                )
            if isinstance(snapshot, DuralogError):
                raise snapshot
            return reader_of(schema, options, snapshot, self._plan_typed(options))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        from duralog.spark.source.read_options import ReadOptions
        from duralog.spark.source.refused_stream import RefusedStreamReader
        from duralog.spark.source.unlimited_stream import stream_reader_of

        self._hand_over_snapshot()
        try:
            options = ReadOptions.of(self.options, streaming=True)
            return stream_reader_of(schema, options, self._plan_typed(options))
        except DuralogError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> datasource.DataSourceArrowWriter:
        with plain_errors(), arrow_needed():
            from duralog.spark.sink.writers import DuralogArrowWriter

            return DuralogArrowWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        with plain_errors(), arrow_needed():
            from duralog.spark.sink.writers import DuralogStreamArrowWriter

            return DuralogStreamArrowWriter(schema, self.options, overwrite)

    def _take_snapshot(self) -> FrameSnapshot | DuralogError | None:
        with plain_errors(), arrow_needed():
            from duralog.spark.option_text import InvalidOption
            from duralog.spark.source.planned_read import take_snapshot
            from duralog.spark.source.read_options import ReadOptions

        try:
            options = ReadOptions.of(self.options, streaming=False)
        except InvalidOption:
            # Those of a stream, or wrong ones, which every reader refuses itself.
            return None
        try:
            return take_snapshot(options)
        except DuralogError as error:
            return error

    def _hand_over_snapshot(self) -> FrameSnapshot | DuralogError | None:
        """To the reader that is made from it. Tasks get this object, too, and have no use for it."""
        self._is_new = False
        snapshot, self._snapshot = self._snapshot, None
        return snapshot
