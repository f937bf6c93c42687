"""Where the facts come from: a log directory, a broker, or both. Nothing here knows of pages."""
