"""Kafka's log storage, in layers: disk, segment, append, log, recovery, metadata, compaction, store, checks, repair."""
