"""Facts in, pictures and texts out. Nothing here knows of browsers or files."""
