"""`duralog.scan`: the records of topics as a table, read ahead on threads, for Arrow, DuckDB, Polars and pandas."""
