"""Lets Spark find `format("duralog")` by itself: it looks for a `DefaultSource` in every package named `pyspark_*`."""

from duralog.spark.data_source import DuralogDataSource as DefaultSource
from duralog.spark.hung_up import end_quietly_when_hung_up

# Spark hangs up on the worker that has found this.
end_quietly_when_hung_up()

__all__ = ["DefaultSource"]
