"""Change events without a key: truncates, which empty the table, and changes of tables that have no primary key.

A truncate concerns all rows before it, and Debezium writes it to one partition of the topic. With one partition, the
order of the log says which rows are before it. With several, nothing does for certain, not even the positions in the
events' source (`docs/decisions/0030`): such a snapshot is refused rather than guessed. So is one of a table without a
primary key, one with a truncate among the events of several tables, and one with an event that does not decode: it may
be a truncate.
"""

from __future__ import annotations

import numpy as np

from duralog.columnar.decoded import DecodedRecords
from duralog.config.times import format_time
from duralog.errors import DuralogError
from duralog.scanning.keyed_offsets import Numbers, keys_of_log
from duralog.scanning.slices import Slice
from duralog.spark.jobs.snapshots.partition_task import PartitionTask
from duralog.spark.lake.change_rows import row_places, truncated_places


class RowsUnknown(DuralogError):
    """The change events of a topic do not say what is in the table."""


class KeylessChanges:
    """Called with the records without a key, in the order of the log."""

    def __init__(self, task: PartitionTask) -> None:
        self._task = task
        self._truncated_offset = task.truncated_offset

    def __call__(self, found: Slice, records: DecodedRecords) -> None:
        task = self._task
        decoded = task.rows.events(
            records.to_arrow(topic=found.topic, partition=found.partition, columns=task.rows.columns)
        )
        offsets, events = records.columns.offset, decoded.values
        bad = np.flatnonzero(np.asarray(decoded.reasons.is_valid()))
        if len(bad):
            raise RowsUnknown(
                f"{found.topic}-{found.partition} offset {offsets[bad[0]]}: an event without a key does not decode, and"
                f" may have emptied the table: {decoded.reasons[int(bad[0])]}. Take the snapshot as of an earlier"
                " point, or give the schema that it was written by"
            )
        changes, truncates = row_places(events), truncated_places(events)
        if len(changes):
            raise RowsUnknown(
                f"{found.topic}-{found.partition} offset {offsets[changes[0]]}: a change of a row without a key: the"
                " database's table has no primary key, so its rows cannot be told apart. Give Debezium"
                " message.key.columns, or export the topic with --unwrap debezium as a history"
            )
        if len(truncates):
            first = int(truncates[0])
            if not task.is_only:
                raise RowsUnknown(
                    f"{found.topic}-{found.partition} offset {offsets[first]}: the database's table was truncated, and"
                    " the topic has several partitions: which rows of the others were there before is not known. Take"
                    f" the snapshot as of {format_time(int(records.columns.timestamp[first]))} or before. To have later"
                    " ones, let Debezium take a snapshot of the table into a topic with one partition"
                )
            if task.rows.has_several_tables:
                raise RowsUnknown(
                    f"{found.topic}-{found.partition} offset {offsets[first]}: a table of the database was truncated,"
                    " and the topic has the events of several: which rows it had is not known. Take the snapshot as of"
                    f" {format_time(int(records.columns.timestamp[first]))} or before. To have later ones, give each"
                    " table a topic"
                )
            self._truncated_offset = max(self._truncated_offset, int(offsets[truncates[-1]]))

    @property
    def truncated_offset(self) -> int:
        """Of the last truncate."""
        return self._truncated_offset

    def left_of(self, marks: Numbers) -> Numbers:
        """The marks of records after it."""
        return marks[(marks >> 1) > self._truncated_offset]


def last_truncate(task: PartitionTask) -> int:
    """The offset of the last truncate in the task's slices, -1 if there is none."""
    changes = KeylessChanges(task)
    for _ in keys_of_log(task.slices, task.rows.identity, changes):
        pass
    return changes.truncated_offset
