"""Frames, requests and messages of Kafka's protocol."""
