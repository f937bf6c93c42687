"""The reports of verify, repair, retain and compact: one type each, on threads and on Spark.

Values, `to_dict()` for JSON and `frame(spark)` for a query. Nothing here imports PySpark.
"""
