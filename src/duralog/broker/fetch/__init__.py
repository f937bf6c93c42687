"""Fetch: sessions, reading, waiting for data (Kafka's purgatory) and the response."""
