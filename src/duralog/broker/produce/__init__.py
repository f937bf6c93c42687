"""Produce: the request read by hand, Kafka's rules for it, and the response."""
