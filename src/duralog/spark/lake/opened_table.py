"""Opens the table at a target, of the format that is asked for. A table of another format is refused."""

from __future__ import annotations

import importlib.util

from duralog.errors import DuralogError
from duralog.spark.lake.parquet_table import ParquetTable, ParquetVersions
from duralog.spark.lake.table_state import TableFormat
from duralog.spark.lake.tables import LakeTable, TableRefused, TableSpec
from duralog.spark.lake.targets import LakeTarget


def open_table(table_format: TableFormat, spec: TableSpec) -> LakeTable:
    found = _format_of(spec.target)
    if found is not None and found is not table_format:
        raise TableRefused(f"{spec.where}: expected a table of format {table_format}, found one of format {found}")
    if table_format is TableFormat.DELTA:
        _require("deltalake")
        from duralog.spark.lake.delta_table import DeltaLakeTable

        return DeltaLakeTable(spec)
    if table_format is TableFormat.ICEBERG:
        _require("pyiceberg")
        from duralog.spark.lake.iceberg_table import IcebergTable

        return IcebergTable(spec)
    return ParquetVersions(spec) if spec.is_replaced else ParquetTable(spec)


def _format_of(target: LakeTarget) -> TableFormat | None:
    if target.exists("_delta_log"):
        return TableFormat.DELTA
    if target.exists("metadata"):
        return TableFormat.ICEBERG
    return None


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise DuralogError(f"{package} is not installed, which commits such tables: pip install 'duralog[lakehouse]'")
