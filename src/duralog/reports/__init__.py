"""What verify, repair, retain and compact return: one type each, on threads and on Spark.

Values, `to_dict()` for JSON and `frame(spark)` for a query. Nothing here imports PySpark.
"""
