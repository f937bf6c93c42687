"""Log directories as tables, local or on an object store: planning, slices and their reading. Needs no Spark."""
