"""Kafka's configs, under Kafka's names."""
