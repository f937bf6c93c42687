"""Decoded records of one partition as one table: of Arrow, or of a library that duralog does not depend on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from duralog.columnar.schema import record_schema
from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars


def to_table(batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None) -> pa.Table:
    """A table with a chunk for each batch. Without batches, it still has the columns."""
    schema = record_schema(None if columns is None else tuple(columns))
    return pa.Table.from_batches(list(batches), schema)


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    try:
        return table.to_pandas()
    except ImportError:
        raise DuralogError("to_pandas needs pandas, which is not installed: pip install pandas") from None


def to_polars(table: pa.Table) -> polars.DataFrame:
    try:
        import polars
    except ImportError:
        raise DuralogError("to_polars needs polars, which is not installed: pip install polars") from None
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)
    return frame
