"""Topics, their ids and configs, in the KRaft log `__cluster_metadata` as in Kafka."""
