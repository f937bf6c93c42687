"""Quotas of users, client ids and addresses: which one applies, its usage, and the throttle time."""
