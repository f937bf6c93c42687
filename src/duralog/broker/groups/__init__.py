"""Consumer groups: their members, their committed offsets, and the log of both."""
