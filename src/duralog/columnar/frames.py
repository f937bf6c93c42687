"""An Arrow table as a data frame of another library, which duralog does not bring along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duralog.errors import DuralogError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa


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
