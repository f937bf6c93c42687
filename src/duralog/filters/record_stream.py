"""Filters a stream of records as Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from duralog.columnar.schema import RECORD_SCHEMA
from duralog.filters.conditions import Condition
from duralog.filters.matching import Matcher
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record

_AT_ONCE = 1_000
_AT_ONCE_BYTES = 4 << 20

Placed = tuple[str, int, Record]
"""A topic, a partition and a record of it."""


def matching(
    found: Iterable[Placed], condition: Condition, *, is_live: bool, on_read: Callable[[Placed], None]
) -> Iterator[Placed]:
    """The matching records, in order. With `is_live`, each record is checked when it arrives.

    `on_read` is called with every record that is read.
    """
    matcher = Matcher(condition)
    waiting: list[Placed] = []
    waiting_bytes = 0
    for placed in found:
        on_read(placed)
        waiting.append(placed)
        waiting_bytes += len(placed[2].key or b"") + len(placed[2].value or b"")
        if is_live or len(waiting) >= _AT_ONCE or waiting_bytes >= _AT_ONCE_BYTES:
            yield from _matching(waiting, matcher)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield from _matching(waiting, matcher)


def _matching(some: Sequence[Placed], matcher: Matcher) -> Iterator[Placed]:
    rows = matcher.rows(record_batch([record for _, _, record in some]))
    return (some[row] for row in rows.tolist())


def record_batch(
    records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
) -> pa.RecordBatch:
    """With the columns of `RECORD_SCHEMA`."""
    count = len(records)
    columns = (
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        [record.offset for record in records],
        [None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms for record in records],
        [int(record.timestamp_type) for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [[{"key": name, "value": value} for name, value in record.headers] for record in records],
    )
    return pa.RecordBatch.from_arrays(
        [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, RECORD_SCHEMA, strict=True)
        ],
        schema=RECORD_SCHEMA,
    )
