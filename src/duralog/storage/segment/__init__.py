"""One segment (Kafka's `LogSegment`): its log file, its indexes, and lookups in them."""
