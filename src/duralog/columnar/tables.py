"""Decoded records of one partition as one table: of Arrow, pandas or Polars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from duralog.columnar.schema import record_schema
from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars


def to_table(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None
) -> pa.Table:
    """A table with a chunk for each batch. Without batches, it still has the columns, or those of the schema."""
    if schema is None:
        schema = record_schema(None if columns is None else tuple(columns))
    return pa.Table.from_batches(list(batches), schema)


def taken_by_others(schema: pa.Schema) -> pa.Schema:
    """The schema with text for decimals of more than 38 digits, which Polars and DuckDB do not have."""
    return pa.schema([field.with_type(_taken(field.type)) for field in schema])


def _taken(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal256(type_):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_taken(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(_taken(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_taken(type_.value_type)))
    return type_


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
    frame = polars.from_arrow(table.cast(taken_by_others(table.schema)))
    assert isinstance(frame, polars.DataFrame)
    return frame
