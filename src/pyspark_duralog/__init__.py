"""Lets Spark find `format("duralog")` by itself: it looks for a `DefaultSource` in every package named `pyspark_*`."""
