"""`format("duralog")` for Spark."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DuralogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "duralog"
