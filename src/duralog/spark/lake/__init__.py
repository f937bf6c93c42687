"""Tables that other programs read: Parquet, Delta and Iceberg, written without a JVM and committed as one.

Tasks write Parquet files (`parquet_files`), the driver commits them (`parquet_table`, `delta_table`, `iceberg_table`)
together with the offsets up to which each partition of the log is in the table (`table_state`). No PySpark in here.
"""
