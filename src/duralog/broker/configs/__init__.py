"""Configs of the broker, its topics and groups, and how they change."""
