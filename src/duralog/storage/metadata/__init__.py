"""Topics, their ids and configs: the log `__cluster_metadata` as Kafka keeps it."""
