"""The sink of `format("duralog")`, for batch writes and for streaming queries.

Tasks stage their rows as batches (`staging_task`), the driver commits them once (`commit`, or `broker_sink` where a
broker holds the directory). Spark gives the commit one report for each task, of the attempt that it accepted; other
attempts leave only files that are removed later.

A streaming query is identified by the id in its checkpoint, and a micro-batch by its number: Spark gives both to the
tasks, and they report them to the commit. A micro-batch that is repeated after a crash does nothing if it was committed
before. A query that starts with a new checkpoint has a new id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from duralog.errors import InvalidConfig, StorageError
from duralog.spark.plain_errors import plain_errors
from duralog.spark.sink.commit import check_free, commit, discard
from duralog.spark.sink.staging import StagedTask, WriteTask
from duralog.spark.sink.staging_task import stage_rows
from duralog.spark.sink.write_columns import record_names
from duralog.spark.sink.write_options import AppVersion, WriteOptions
from duralog.spark.sink.write_targets import WriteTargets, store_targets
from duralog.spark.spark_versions import DataSourceStreamArrowWriter, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """What a task reports to the commit."""

    staged: StagedTask
    writer: str
    query_id: str | None = None


def _planned(
    schema: StructType, options: Mapping[str, str], overwrite: bool, *, streaming: bool
) -> tuple[WriteOptions, WriteTargets]:
    """All that can be refused before the first task starts."""
    if overwrite:
        kind = "outputMode complete" if streaming else "mode overwrite"
        raise InvalidConfig(f"{kind} cannot be written: a log is only appended to, so use append")
    chosen = WriteOptions.of(options, streaming=streaming)
    record_names(arrow_schema(schema), chosen)
    if chosen.bootstrap_servers is not None:
        from duralog.spark.sink.broker_sink import broker_targets

        return chosen, broker_targets(chosen)
    check_free(chosen.path)
    return chosen, store_targets(chosen)


def _commit(
    reports: Sequence[TaskReport], options: WriteOptions, *, writer: str, batch: int, transaction: AppVersion | None
) -> None:
    staged = [report.staged for report in reports]
    if options.bootstrap_servers is not None:
        from duralog.spark.sink.broker_sink import send

        send(staged, options, writer=writer, batch=batch, transaction=transaction)
    else:
        commit(staged, options, writer=writer, batch=batch, transaction=transaction)


def _named_write(options: WriteOptions) -> AppVersion | None:
    """What a batch write is remembered by, if it has a name.

    The topic of the option is part of it: an application may well write each version to several topics, one by one.
    """
    named, topic = options.transaction, options.topic
    if named is None:
        return None
    # No topic has a space in its name, so no two of these are the same.
    application = f"app {named.application}" if topic is None else f"app-to {topic} {named.application}"
    return AppVersion(application=application, version=named.version)


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    return [message for message in messages if isinstance(message, TaskReport)]


class DuralogArrowWriter(DataSourceArrowWriter):
    """One batch write: made on the driver, sent to the tasks, and used again by the driver for the commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        with plain_errors():
            self._options, self._targets = _planned(schema, options, overwrite, streaming=False)
        self._writer = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        context = TaskContext.get()
        assert context is not None
        with plain_errors():
            task = WriteTask(self._writer, 0, context.partitionId())
            staged = stage_rows(iterator, self._targets, self._options, task)
        return TaskReport(staged, self._writer)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with plain_errors():
            _commit(
                _reports(messages), self._options, writer=self._writer, batch=0, transaction=_named_write(self._options)
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        with plain_errors():
            discard(self._options, writer=self._writer)


class DuralogStreamArrowWriter(DataSourceStreamArrowWriter):
    """The writes of a streaming query. Spark makes one for the tasks of each micro-batch and another for its commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        with plain_errors():
            self._options, self._targets = _planned(schema, options, overwrite, streaming=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        context = TaskContext.get()
        assert context is not None
        with plain_errors():
            query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
            if query_id is None or batch_id is None:
                raise StorageError(
                    f"this Spark does not give its tasks the id of their streaming query ({_QUERY_ID}, {_BATCH_ID}):"
                    " the sink could not recognise a repeated micro-batch"
                )
            writer = sha256(query_id.encode()).hexdigest()[:32]
            task = WriteTask(writer, int(batch_id), context.partitionId())
            staged = stage_rows(iterator, self._targets, self._options, task)
        return TaskReport(staged, writer, query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reports = _reports(messages)
        if reports:
            transaction = AppVersion(application=f"query {reports[0].query_id}", version=batchId)
            with plain_errors():
                _commit(reports, self._options, writer=reports[0].writer, batch=batchId, transaction=transaction)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for report in _reports(messages)[:1]:
            with plain_errors():
                discard(self._options, writer=report.writer, batch=batchId)
