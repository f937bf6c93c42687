"""Decoded records of one partition as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.schema import RECORD_SCHEMA


def to_table(
    chunks: Iterable[DecodedRecords], *, topic: str, partition: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """A table with a chunk for each chunk of records: nothing is copied twice. Columns are in the schema's order."""
    unknown = set(columns or ()) - set(RECORD_SCHEMA.names)
    if unknown:
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}; there are {RECORD_SCHEMA.names}")
    schema = pa.schema([field for field in RECORD_SCHEMA if columns is None or field.name in columns])
    batches = [chunk.to_arrow(topic=topic, partition=partition, columns=columns) for chunk in chunks]
    return pa.Table.from_batches(batches, schema)
