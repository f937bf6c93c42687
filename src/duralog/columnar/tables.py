"""Record batches of one partition as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from duralog.columnar.schema import record_schema


def to_table(batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None) -> pa.Table:
    """A table with a chunk for each batch. Without batches, it still has the columns."""
    schema = record_schema(None if columns is None else tuple(columns))
    return pa.Table.from_batches(list(batches), schema)
