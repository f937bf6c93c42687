"""`duralog stats`."""
