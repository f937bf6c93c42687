"""Consumer groups: who is in them, what they have committed, and the log that remembers it."""
