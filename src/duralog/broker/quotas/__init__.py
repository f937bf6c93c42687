"""Quotas of users, client ids and addresses: which one applies, how much of it is used, and for how long to wait."""
