"""The rows of one task to batches, topic-partition by topic-partition.

Rows keep their order within a partition. Every rule of the topic that a row can break is checked here, and refused with
the column and the row, counted from the first row of the task: the commit does not check rows again. The batches have
base offset 0, as a client sends them. With `preserveOffsets` they have their offsets: then the rows of a partition must
ascend by offset, and log append time (`timestampType` 1) is kept, with one batch for each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.encode_columns import BatchSettings, EncodedBatches, WritableColumns, encode_columns
from duralog.columnar.record_columns import first_null
from duralog.columnar.schema import KEY, OFFSET, PARTITION, TIMESTAMP_TYPE, TOPIC, VALUE
from duralog.columnar.writable import binary_column, writable_columns
from duralog.errors import InvalidRecord
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2, NO_TIMESTAMP
from duralog.format.record import TimestampType
from duralog.kernels.encode import BinaryColumn
from duralog.spark.sink.partitioner import UNDECIDED, Partitioner
from duralog.spark.sink.write_options import WriteOptions
from duralog.spark.sink.write_targets import TopicTarget, WriteTargets
from duralog.storage.append.rebuilding import target_level
from duralog.storage.append.record_append import batch_room, check_keys, check_sizes, check_timestamps, stored_codec
from duralog.storage.disk.background import Clock

_BASE_OFFSET_BYTES = np.arange(BATCH_V2.at.base_offset, BATCH_V2.at.base_offset + 8)
_LOG_APPEND_TIME = 1
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRun:
    """Batches of one topic-partition, in order."""

    topic: str
    partition: int
    parts: Sequence[EncodedBatches]
    codec: Codec
    has_null_key: bool
    first_offset: int
    last_offset: int
    """Both counted within the run, unless offsets are preserved."""
    chosen_of: int | None
    """Out of how many partitions this one was chosen; None if the rows name it themselves."""


class RowEncoder:
    """Encodes the rows of one task, chunk after chunk."""

    def __init__(self, targets: WriteTargets, options: WriteOptions, *, task: int, clock: Clock) -> None:
        self._targets = targets
        self._options = options
        self._task = task
        self._clock = clock
        self._partitioner = Partitioner(task, options.batch_bytes)
        self._rows_before = 0
        self._last_offsets: dict[tuple[str, int], int] = {}

    def encode(self, table: pa.Table) -> Iterator[EncodedRun]:
        """The rows of the next chunk, whose columns `write_columns.as_records` has named."""
        table = table.combine_chunks()
        topics, topic_of_row = self._topics(table)
        targets = [self._target(topics, index, topic_of_row) for index in range(len(topics))]
        partitions, are_chosen = self._partitions(table, topics, targets, topic_of_row)
        for index, partition, rows in _groups(topic_of_row, partitions):
            group = table if len(rows) == table.num_rows else table.take(pa.array(rows))
            try:
                yield self._encode_group(group, topics[index], partition, targets[index], are_chosen=are_chosen)
            except InvalidRecord as error:
                raise self._located(error, rows, f"{topics[index]}-{partition}") from None
        self._rows_before += table.num_rows

    def _refuse(self, column: str, row: int, reason: str) -> InvalidRecord:
        return InvalidRecord(f"column {column}, row {self._rows_before + row} of task {self._task}: {reason}")

    def _located(self, error: InvalidRecord, rows: NDArray[np.int64], partition: str) -> InvalidRecord:
        """The same error, with the row as the task counts it."""
        if not error.record_errors:
            return type(error)(f"{partition}, task {self._task}: {error}")
        row, reason = error.record_errors[0]
        column, _, rest = reason.removeprefix("column ").partition(": ")
        where = f"row {self._rows_before + int(rows[row])} of task {self._task}"
        if not rest:
            return type(error)(f"{where}, for {partition}: {reason}")
        return type(error)(f"column {column}, {where}, for {partition}: {rest}")

    # Where rows go

    def _topics(self, table: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
        """The topics, and for each row which of them it is for."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(table.num_rows, np.int64)
        column = table.column(TOPIC)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._refuse(TOPIC, row, "null: give every row a topic, or the option topic")
        encoded = column.combine_chunks().dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)

    def _target(self, topics: Sequence[str], index: int, topic_of_row: NDArray[np.int64]) -> TopicTarget:
        try:
            return self._targets.of(topics[index])
        except InvalidRecord as error:
            row = int(np.flatnonzero(topic_of_row == index)[0])
            raise self._refuse(TOPIC, row, str(error)) from None

    def _partitions(
        self, table: pa.Table, topics: Sequence[str], targets: Sequence[TopicTarget], topic_of_row: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], bool]:
        """The partition of each row, and whether some were chosen here."""
        counts = np.array([target.partitions for target in targets], np.int32)[topic_of_row]
        given = self._given_partitions(table, topics, topic_of_row, counts)
        if given is not None and (given != UNDECIDED).all():
            return given, False
        value = binary_column(table.column(VALUE), VALUE)
        if KEY not in table.column_names:
            no_keys = np.zeros(len(counts), np.bool_)
            return self._partitioner.choose(counts, value, no_keys, value, given), True
        keys = table.column(KEY)
        key = binary_column(keys, KEY)
        has_key = np.ones(len(counts), np.bool_)
        if keys.null_count:
            has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        return self._partitioner.choose(counts, key, has_key, value, given), True

    def _given_partitions(
        self, table: pa.Table, topics: Sequence[str], topic_of_row: NDArray[np.int64], counts: NDArray[np.int32]
    ) -> NDArray[np.int32] | None:
        if PARTITION not in table.column_names:
            return None
        column = table.column(PARTITION).combine_chunks()
        given = column.cast(pa.int64()).fill_null(UNDECIDED).to_numpy(zero_copy_only=False)
        wrong = (given < 0) | (given >= counts)
        if column.null_count:
            if self._options.preserve_offsets:
                row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise self._refuse(PARTITION, row, "null: a record that keeps its offset keeps its partition")
            wrong &= column.is_valid().to_numpy(zero_copy_only=False)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            topic = topics[topic_of_row[row]]
            reason = f"{given[row]}: {topic} has the partitions 0 to {counts[row] - 1}"
            raise self._refuse(PARTITION, row, reason)
        chosen: NDArray[np.int32] = given.astype(np.int32)
        return chosen

    # What is written

    def _encode_group(
        self, group: pa.Table, topic: str, partition: int, target: TopicTarget, *, are_chosen: bool
    ) -> EncodedRun:
        preserves = self._options.preserve_offsets
        now_ms = self._clock()
        if not preserves and OFFSET in group.column_names:
            group = group.drop_columns([OFFSET])
        columns = writable_columns(group, base_offset=0, default_timestamp_ms=NO_TIMESTAMP if preserves else now_ms)
        check_keys(columns, target.config)
        if preserves:
            self._check_follows(columns, topic, partition)
        elif target.config.message_timestamp_type == "CreateTime":
            check_timestamps(columns, target.config, now_ms)
            if self._options.bootstrap_servers is not None:
                _check_not_zero(columns.timestamp)
        codec = stored_codec(target.config, self._options.codec)
        parts = [
            self._encode(_rows_of(columns, begin, end), target, codec, append_time_ms, begin)
            for begin, end, append_time_ms in _by_time_type(group, columns.timestamp, preserves=preserves)
        ]
        if not preserves:
            for part in parts:
                part.data[part.batches["position"][:, None] + _BASE_OFFSET_BYTES] = 0
        return EncodedRun(
            topic=topic,
            partition=partition,
            parts=parts,
            codec=codec,
            has_null_key=first_null(columns.key) is not None,
            first_offset=int(columns.offset[0]),
            last_offset=int(columns.offset[-1]),
            chosen_of=target.partitions if are_chosen else None,
        )

    def _encode(
        self, columns: WritableColumns, target: TopicTarget, codec: Codec, append_time_ms: int | None, first_row: int
    ) -> EncodedBatches:
        level = self._options.level if codec is self._options.codec else None
        encoded = encode_columns(
            columns,
            BatchSettings(
                codec=codec,
                level=target_level(target.config, codec) if level is None else level,
                batch_bytes=batch_room(target.config, codec, self._options.batch_bytes),
                timestamp_type=TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
                append_time_ms=append_time_ms,
            ),
        )
        try:
            check_sizes(encoded, target.config)
        except InvalidRecord as error:
            error.record_errors = tuple((first_row + row, reason) for row, reason in error.record_errors)
            raise
        return encoded

    def _check_follows(self, columns: WritableColumns, topic: str, partition: int) -> None:
        """The chunks of a partition ascend, too; within a chunk it is checked with the columns."""
        before = self._last_offsets.get((topic, partition), -1)
        first = int(columns.offset[0])
        if first <= before:
            reason = f"expected more than {before}, found {first}: sort within partitions by topic, partition, offset"
            raise InvalidRecord(reason, record_errors=[(0, f"column {OFFSET}: {reason}")])
        last = int(columns.offset[-1])
        if last == _INT64_MAX:
            reason = f"expected less than {_INT64_MAX}, found {last}: there is no offset for a log to end at"
            raise InvalidRecord(reason, record_errors=[(len(columns.offset) - 1, f"column {OFFSET}: {reason}")])
        self._last_offsets[topic, partition] = last


def _check_not_zero(times: NDArray[np.int64]) -> None:
    """The client that sends rows to a broker would replace this time: for it, 0 means none."""
    wrong = np.flatnonzero(times == 0)
    if len(wrong):
        reason = "0, the start of 1970, cannot be sent through a broker's port"
        raise InvalidRecord(reason, record_errors=[(int(wrong[0]), f"column timestamp: {reason}")])


def _groups(
    topic_of_row: NDArray[np.int64], partitions: NDArray[np.int32]
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """The rows of each topic-partition, in their order."""
    span = int(partitions.max(initial=0)) + 1
    codes = topic_of_row * span + partitions
    # numpy sorts 16-bit numbers by counting them, several times as fast.
    order = np.argsort(codes.astype(np.uint16) if codes.max(initial=0) < 2**16 else codes, kind="stable")
    sorted_codes = codes[order]
    begins = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
        topic, partition = divmod(int(sorted_codes[begin]), span)
        yield topic, partition, order[begin:end]


def _by_time_type(
    group: pa.Table, times: NDArray[np.int64], *, preserves: bool
) -> Iterator[tuple[int, int, int | None]]:
    """The rows in parts of which a batch can be made, and the log append time of each, if it has one."""
    if not preserves or TIMESTAMP_TYPE not in group.column_names:
        yield 0, len(times), None
        return
    types = group.column(TIMESTAMP_TYPE).cast(pa.int32()).fill_null(0).to_numpy()
    is_append_time = types == _LOG_APPEND_TIME
    append_times = np.where(is_append_time, times, NO_TIMESTAMP)
    changes = (is_append_time[1:] != is_append_time[:-1]) | (append_times[1:] != append_times[:-1])
    begins = [0, *(np.flatnonzero(changes) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
        yield begin, end, int(append_times[begin]) if is_append_time[begin] else None


def _rows_of(columns: WritableColumns, begin: int, end: int) -> WritableColumns:
    def cut(column: BinaryColumn) -> BinaryColumn:
        return column._replace(offsets=column.offsets[begin : end + 1], first_bit=column.first_bit + begin)

    return WritableColumns(
        columns.offset[begin:end],
        columns.timestamp[begin:end],
        cut(columns.key),
        cut(columns.value),
        cut(columns.headers),
    )
