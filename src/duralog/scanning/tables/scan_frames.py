"""A scan as a lazy frame of Polars and as a table of DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duralog.columnar.tables import taken_by_others
from duralog.errors import DuralogError
from duralog.scanning.tables.polars_predicates import PolarsPredicate
from duralog.scanning.tables.scan_planning import WantedPart

if TYPE_CHECKING:
    import duckdb
    import polars as pl

ReadColumns = Callable[[Iterable[str] | None], pa.RecordBatchReader]
"""The records of a scan, read from the start: these columns of them, or all."""
ReadPart = Callable[[Iterable[str] | None, WantedPart | None], pa.RecordBatchReader]
"""The same, without some that a query does not want."""


def polars_frame(schema: pa.Schema, read_part: ReadPart) -> pl.LazyFrame:
    """Polars asks for the columns that the query uses, and for no more batches when it has enough rows.

    The predicate of a query narrows what is read, unless there is a limit, too: that is one on the rows before it.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise DuralogError("to_polars needs polars, which is not installed: pip install polars") from None

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        if left == 0:
            return
        part = None if predicate is None or left is not None else PolarsPredicate(predicate)
        for batch in _fitting(read_part(with_columns, part)):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            if with_columns is not None:
                frame = frame.select(with_columns)
            # A limit that comes with a condition is one on the rows before it: `head(7).filter(...)`.
            if left is not None:
                frame = frame.head(left)
                left -= len(frame)
            if predicate is not None:
                frame = frame.filter(predicate)
            if len(frame):
                yield frame
            if left == 0:
                return

    empty = pl.from_arrow(taken_by_others(schema).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return register_io_source(read, schema=empty.schema)


def duckdb_table(
    read_columns: ReadColumns, name: str, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyConnection:
    """Registered as an object that creates a new stream for each query: a stream would be empty the second time."""
    try:
        import duckdb
    except ImportError:
        raise DuralogError("to_duckdb needs duckdb, which is not installed: pip install duckdb") from None
    found = duckdb.connect() if connection is None else connection
    found.register(name, _Stream(read_columns))
    return found


class _Stream:
    """Creates a new Arrow stream for each use."""

    def __init__(self, read_columns: ReadColumns) -> None:
        self._read_columns = read_columns

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _fitting(self._read_columns(None)).__arrow_c_stream__(requested_schema)


def _fitting(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The records, with types that other libraries have."""
    schema = taken_by_others(reader.schema)
    if schema == reader.schema:
        return reader
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))
