"""A streaming read: micro-batches between offsets, while a store or a broker writes, rolls, compacts and deletes.

Spark keeps one Python worker for the driver's side of a query. It asks for the latest offset, for the tasks between two
offsets, and writes each pair down before a task runs. After a crash it asks for the tasks between the same two offsets
again; offsets never change, so a sink that knows its batches gets every record exactly once.

What must always be true:
- An end is never beyond what a reader of this isolation may see: the last stable offset, or the end of the log.
- An end names every partition that is read from then on. One that appears later starts at its beginning.
- A start that moves is written down before anything after it is read. Spark writes ends down, but not where the first
  batch started; for that it asks again, also after a crash. So a query that starts at the end of a log has an empty
  first batch.
- Each refresh opens the directory again, since a read-only store shows what was there when it was opened.

Several directories are those of a cluster: each refresh chooses the copies again (`stream_history`).

Records that retention deleted before they were read, a partition that is gone, a log that ends before the place where
the query stood, a topic that was created again while the query ran: all that is data loss. With `failOnDataLoss` (the
default) it is an error; without, it is logged and the query continues with what is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from duralog.errors import OffsetOutOfRange
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import Logs
from duralog.scanning.offset_ranges import FROM_EARLIEST, TO_LATEST, Bound, OffsetRange, Timestamps
from duralog.spark.plain_errors import plain_errors
from duralog.spark.source.planned_read import chosen_partitions, data_loss_handler, log_plan, resolve_bounds
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import Columns
from duralog.spark.source.stream_history import StreamHistory, not_back, present, waiting
from duralog.spark.source.stream_limits import within_bytes
from duralog.spark.source.stream_offsets import OffsetJson, Positions, distance, from_json, only, shared_out, to_json
from duralog.spark.source.task_reading import SliceTask, read_task
from duralog.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from duralog.storage.log.time_lookup import LATEST

if TYPE_CHECKING:
    import pyarrow as pa

    from duralog.schemas.typed_columns import TypedColumns

REFRESH_SECONDS = 0.1
"""Between two refreshes of a directory that had nothing new. Spark itself would ask a hundred times a second."""
REMOTE_REFRESH_SECONDS = 1.0
"""The same for a remote directory, where each refresh is a request."""
_PAUSE_TO_REFRESH = 4
"""If a refresh takes long, with many partitions or a remote directory, the pause is this many times as long."""

_logger = logging.getLogger(__name__)


class DuralogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of one query. Pickled into tasks for `read`, which needs nothing of its state."""

    def __init__(self, schema: StructType, options: ReadOptions, typed: TypedColumns | None = None) -> None:
        self._columns = Columns(schema, options, typed)
        self._options = options
        self._target: Positions | None = None
        """For `Trigger.AvailableNow`: where everything ended when the query began."""
        self._initial: OffsetJson | None = None
        self._is_begun = False
        self._seen: Positions | None = None
        self._topic_ids: dict[str, str] = {}
        """Of the topics that this query has seen. Its checkpoint knows them by name alone, as the connector's does."""
        self._history = StreamHistory()
        self._last_trigger: float | None = None
        self._next_refresh = float("-inf")

    # What Spark asks

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """The same whenever Spark asks: once for the end of the first batch, and again for its tasks."""
        if self._initial is None:
            with plain_errors(), self._open() as logs:
                partitions = chosen_partitions(logs, self._options)
                ranges = resolve_bounds(logs, partitions, self._options, data_loss_handler(self._options))
                self._initial = to_json({partition: found.start_offset for partition, found in ranges.items()})
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits: Spark takes no more than one, but gives it back to say that limits are in force."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with plain_errors(), self._open() as logs:
            self._target = self._ends(logs)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:  # noqa: N802
        with plain_errors():
            begin = from_json(start)
            is_begun, self._is_begun = self._is_begun, True
            if not is_begun and start == self._initial and _starts_at_the_end(self._options.start):
                return self._initial
            self._wait()
            began = time.monotonic()
            with self._open() as logs:
                ends = waiting(logs, begin, self._ends(logs))
                self._seen = ends
                if self._target is not None:
                    ends = _not_behind(self._target, begin, ends)
                self._check_loss(begin, ends)
                self._check_topics(logs, begin)
                self._check_history(logs, begin)
                ends = not_back(logs, begin, ends)
                begin = self._begins(logs, begin, ends)
                if not isinstance(limit, ReadAllAvailable):
                    ends = self._limited(logs, begin, ends)
            if distance(begin, ends):
                self._last_trigger = time.monotonic()
            else:
                self._rest(began, is_remote=logs.is_remote)
            return to_json(ends)

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        return None if self._seen is None else to_json(self._seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with plain_errors():
            starts = from_json(start)
            with self._open() as logs:
                ends = self._still_there(logs, starts, from_json(end))
                self._check_topics(logs, ends)
                self._check_history(logs, starts)
                begin = self._begins(logs, starts, ends)
                ranges = {
                    partition: OffsetRange(begin[partition], end_offset)
                    for partition, end_offset in ends.items()
                    if end_offset > begin[partition]
                }
                planned = logs.plan(
                    ranges,
                    isolation=self._options.isolation,
                    max_slice_bytes=self._options.max_split_bytes,
                    min_slices=self._options.min_partitions,
                    on_data_loss=data_loss_handler(self._options),
                )
            log_plan(self._options, planned)
            return [SliceTask(slices) for slices in planned.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._columns, self._options)

    # How it is found out

    def _open(self) -> Logs:
        return self._options.logs.open()

    def _wait(self) -> None:
        pause = self._next_refresh - time.monotonic()
        if pause > 0:
            time.sleep(pause)

    def _rest(self, began: float, *, is_remote: bool) -> None:
        """After a refresh that found nothing new."""
        now = time.monotonic()
        least = REMOTE_REFRESH_SECONDS if is_remote else REFRESH_SECONDS
        self._next_refresh = now + max(least, _PAUSE_TO_REFRESH * (now - began))

    def _ends(self, logs: Logs) -> Positions:
        """Up to where each partition can be read now."""
        ranges = logs.resolve(
            chosen_partitions(logs, self._options, may_be_gone=True),
            FROM_EARLIEST,
            TO_LATEST,
            isolation=self._options.isolation,
        )
        return {partition: found.end_offset for partition, found in ranges.items()}

    def _begins(self, logs: Logs, start: Mapping[TopicPartition, int], ends: Positions) -> Positions:
        """Where reading begins: partitions that are new to the query begin at their start, which should be 0."""
        begins = only(start, ends)
        for partition in ends:
            if partition not in begins:
                begins[partition] = 0
                first = logs.start_offset(partition)
                if first > 0:
                    self._report_loss(
                        f"{partition} is new to the query, but its log starts at offset {first}, not at 0"
                    )
                    begins[partition] = first
        return begins

    def _still_there(self, logs: Logs, start: Mapping[TopicPartition, int], ends: Positions) -> Positions:
        """The ends without those of partitions that went after Spark wrote them down."""
        there = set(present(logs, ends))
        found = {}
        for partition, end_offset in ends.items():
            if partition in there:
                found[partition] = end_offset
            elif end_offset > start.get(partition, 0):
                self._report_loss(f"{partition} is gone; it was to be read up to offset {end_offset}")
        return found

    def _check_loss(self, start: Mapping[TopicPartition, int], ends: Positions) -> None:
        for partition, offset in start.items():
            if partition not in ends:
                self._report_loss(f"{partition} is gone, or no longer read; the query was at offset {offset}")
            elif ends[partition] < offset:
                self._report_loss(f"{partition} ends at offset {ends[partition]}, but the query was at {offset}")

    def _check_topics(self, logs: Logs, start: Mapping[TopicPartition, int]) -> None:
        """A topic that was deleted and created again has other records at the offsets where the query stood."""
        for topic in {partition.topic for partition in start}.intersection(logs.topics()):
            topic_id = logs.topic_id(topic)
            if topic_id is not None and self._topic_ids.setdefault(topic, topic_id) != topic_id:
                self._topic_ids[topic] = topic_id
                self._report_loss(f"the topic {topic} was deleted and created again since the query read it")

    def _check_history(self, logs: Logs, start: Mapping[TopicPartition, int]) -> None:
        for difference in self._history.differences(logs, start):
            self._report_loss(difference)

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{self._options.path}: {what}: records may be lost; set failOnDataLoss to false to continue"
                " without them"
            )
        _logger.warning("%s: %s: records may be lost", self._options.path, what)

    def _limited(self, logs: Logs, begin: Positions, ends: Positions) -> Positions:
        limits = self._options.limits
        if limits.min_offsets is not None and self._target is None and distance(begin, ends) < limits.min_offsets:
            waited = None if self._last_trigger is None else time.monotonic() - self._last_trigger
            if waited is not None and waited * 1000 < limits.max_delay_ms:
                return begin
        if limits.max_offsets is not None:
            ends = shared_out(begin, ends, limits.max_offsets)
        if limits.max_bytes is not None:
            ends = within_bytes(logs, begin, ends, limits.max_bytes)
        return ends


def _starts_at_the_end(start: Bound) -> bool:
    """Whether the same query, started later, would start after records that are there.

    The earliest offset moves as well, but only over records that are gone.
    """
    if isinstance(start, Timestamps):
        return start.if_none == "latest"
    return LATEST in (start.everywhere, *start.of.values())


def _not_behind(target: Positions, begin: Positions, ends: Positions) -> Positions:
    """The ends of a query that goes no further than the target, but not back to it either.

    A partition that is younger than the target stays where the query began with it, if it did.
    """
    known = {partition: max(target.get(partition, 0), begin.get(partition, 0)) for partition in target | begin}
    return {partition: min(ends[partition], offset) for partition, offset in only(known, ends).items()}
