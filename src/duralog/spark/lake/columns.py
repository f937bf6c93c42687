"""The columns of a table: those of Spark's Kafka connector, so that a query on the topic is a query on the table.

A table that has a database's columns has the connector's under other names, `kafka_offset` and so on: a database may
have a column `offset`. The bytes of a decoded key have the same prefix.

Days are those of UTC. A record without a timestamp has no day, and neither has one whose time lies outside of the years
1 to 9999: readers cannot represent it, and it comes from a producer that used the wrong unit.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.columnar.schema import TIMESTAMP
from duralog.spark.connector_columns import connector_column, connector_schema, times_ms

DATE = "date"
PREFIX = "kafka_"

_DAY_MS = 86_400_000
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_FIRST_DAY = datetime.date.min.toordinal() - _EPOCH_DAY
_LAST_DAY = datetime.date.max.toordinal() - _EPOCH_DAY
_NO_DAY = _FIRST_DAY - 1


class Dated(NamedTuple):
    """Records of one day."""

    day: datetime.date | None
    records: pa.RecordBatch
    """With the columns that they came with."""


@lru_cache(maxsize=4)
def table_schema(*, headers: bool, date: bool = False) -> pa.Schema:
    """The connector's columns, and `date` at the end."""
    columns = connector_schema(headers=headers)
    return columns.append(pa.field(DATE, pa.date32())) if date else columns


def name_of(schema: pa.Schema, column: str) -> str:
    """What a table calls a column of records."""
    prefixed = f"{PREFIX}{column}"
    return prefixed if prefixed in schema.names else column


def without(schema: pa.Schema, column: str) -> pa.Schema:
    """The columns of files whose folders have the value of this one."""
    return pa.schema([field for field in schema if field.name != column])


def to_table_columns(records: pa.RecordBatch, wanted: pa.Schema, day: datetime.date | None = None) -> pa.RecordBatch:
    """Records as a table of this schema holds them; `day` is for the column `date`."""
    arrays = [
        pa.repeat(pa.scalar(day, pa.date32()), records.num_rows) if name == DATE else connector_column(records, name)
        for name in wanted.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def by_day(records: pa.RecordBatch) -> Iterator[Dated]:
    """The records, day by day; those of one day stay in their order. Mostly there is one day, and nothing is copied."""
    days = _days(records.column(TIMESTAMP))
    if not len(days):
        return
    if days[0] == days[-1] and (days == days[0]).all():
        yield Dated(_date(int(days[0])), records)
        return
    order = np.argsort(days, kind="stable")
    ordered = days[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(ordered)], strict=True):
        # Copied: a few rows of a day must not keep a whole batch in memory until the file of that day is written.
        yield Dated(_date(int(ordered[begin])), records.take(pa.array(order[begin:end])))


def _days(times: pa.Array) -> NDArray[np.int64]:
    days = times_ms(times) // _DAY_MS
    has_none = (days < _FIRST_DAY) | (days > _LAST_DAY)
    if times.null_count:
        has_none |= ~times.is_valid().to_numpy(zero_copy_only=False)
    days[has_none] = _NO_DAY
    return days


def _date(day: int) -> datetime.date | None:
    return None if day == _NO_DAY else datetime.date.fromordinal(day + _EPOCH_DAY)
