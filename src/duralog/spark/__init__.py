"""The pipeline on Spark: logs read, streamed, written and looked after straight from their files, no broker between.

`planning` and what it needs work without PySpark; the rest is for `spark.read.format("duralog")` and `duralog job`.
"""
