"""Groups of the new consumer protocol: one heartbeat, assignment by the broker."""
