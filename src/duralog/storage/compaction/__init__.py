"""Kafka's log cleaner: which logs are cleaned, the two passes over one log, and the threads that do it."""
