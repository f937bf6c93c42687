"""The sources of facts: a log directory, a broker, or both. Nothing here depends on pages."""
