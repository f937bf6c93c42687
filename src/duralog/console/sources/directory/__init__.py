"""Facts from a log directory."""
