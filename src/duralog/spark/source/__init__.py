"""Reads and streams: what `spark.read.format("duralog")` and `readStream` do."""
