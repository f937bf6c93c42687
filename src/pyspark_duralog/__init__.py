"""Lets Spark find `format("duralog")` by itself: it looks for a `DefaultSource` in every package named `pyspark_*`."""

from duralog.spark.data_source import DuralogDataSource as DefaultSource

__all__ = ["DefaultSource"]
