"""The log of one partition (Kafka's `UnifiedLog`): an immutable view for readers, one writer, rolling and retention."""
